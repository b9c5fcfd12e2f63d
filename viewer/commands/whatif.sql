-- What 'shardledger whatif' asks beside the ranks' tapes.

-- name: whatif_ranks
-- Ranks that are asked for, and of many the ones that speak for those like them.
SELECT r.rank, g.ranks, :rank IS NULL AND (SELECT count(*) FROM rank) > :most FROM rank r LEFT JOIN (
  SELECT representative, count(*) AS ranks FROM rank_group GROUP BY group_number) g ON g.representative = r.rank
WHERE rank_in(r.rank, :rank) AND (:rank IS NOT NULL OR g.ranks IS NOT NULL OR (SELECT count(*) FROM rank) <= :most)
ORDER BY r.rank

-- name: whatif_where
-- What an allocation was made in, and for which module.
SELECT coalesce(p.kind, ''), coalesce(n.label, '') FROM allocation a LEFT JOIN phase p ON p.id = a.phase_id
LEFT JOIN module_name n ON n.id = a.module_id WHERE a.id = :id

-- name: whatif_nccl
-- What NCCL would take on other numbers of ranks: as many bytes as the recorded communicators are estimated at, since their number of
-- ranks does not matter. Ranks that come to the same share a row. measured: this is the version that the estimate is of.
SELECT rank_ranges(rank), count(*), nccl_version, nccl_version = '2.28.9' AS measured, communicators, estimated_bytes FROM (
  SELECT r.rank, r.nccl_version, count(n.rank) AS communicators, sum(n.estimated_bytes) AS estimated_bytes
  FROM rank r LEFT JOIN nccl_estimate n ON n.rank = r.rank WHERE rank_in(r.rank, :rank) GROUP BY r.rank)
GROUP BY nccl_version, communicators, estimated_bytes ORDER BY min(rank)

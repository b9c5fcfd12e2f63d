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

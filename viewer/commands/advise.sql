-- What 'shardledger advise' asks beside the engine (storage/advise).

-- name: advise_rank
-- Of the ranks that are asked for the one with the highest peak, and whether any of them has a step.
SELECT l.rank, EXISTS (SELECT 1 FROM step s WHERE rank_in(s.rank, :rank) OR :rank IS NULL) FROM life l
WHERE (:rank IS NULL OR rank_in(l.rank, :rank)) AND l.peak_allocated_bytes IS NOT NULL ORDER BY l.peak_allocated_bytes DESC, l.rank LIMIT 1

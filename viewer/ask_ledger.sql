-- name: has_rank
SELECT EXISTS(SELECT 1 FROM rank WHERE (:rank IS NULL OR rank_in(rank, :rank))), min(rank), max(rank) FROM rank

-- name: has_step
SELECT EXISTS(
    SELECT 1 FROM rank AS k CROSS JOIN step AS s ON s.rank = k.rank
    WHERE (:rank IS NULL OR rank_in(k.rank, :rank)) AND s.step = :number),
  min((SELECT min(step) FROM step AS s WHERE s.rank = k.rank)),
  max((SELECT max(step) FROM step AS s WHERE s.rank = k.rank)) FROM rank AS k WHERE (:rank IS NULL OR rank_in(k.rank, :rank))

-- The owner of memory that grows most on :rank next to :base, or (:sign -1) the other way round; grown: owner_growth.
SELECT category, detail, nullif(module, ''), phase, sum(iif(rank = :rank, bytes, -bytes)) AS more FROM grown
WHERE rank IN (:rank, :base) GROUP BY category, detail, module, phase
HAVING more * :sign > 0 ORDER BY more * :sign DESC, category, detail, module, phase LIMIT 1

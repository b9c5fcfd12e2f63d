-- name: survivors_told
-- Text would say the same for every rank: without :rank it shows the one that keeps most.
WITH of_step AS MATERIALIZED (SELECT * FROM survivors WHERE step = :step),
told AS MATERIALIZED (
  SELECT * FROM (
    SELECT g.*, iif(:step IS NULL, bytes, (SELECT sum(u.bytes) FROM of_step u WHERE u.rank = g.rank AND u.module = g.module
        AND u.phase IS g.phase AND u.category = g.category AND u.detail IS g.detail AND u.decided_by IS g.decided_by
        AND u.size_bytes = g.size_bytes)) AS told_bytes,
      iif(:step IS NULL, allocations, (SELECT sum(u.allocations) FROM of_step u WHERE u.rank = g.rank
        AND u.module = g.module AND u.phase IS g.phase AND u.category = g.category AND u.detail IS g.detail
        AND u.decided_by IS g.decided_by AND u.size_bytes = g.size_bytes)) AS told_allocations
    FROM growth g WHERE (:rank IS NULL OR rank_in(rank, :rank)))
  WHERE told_bytes > 0 AND (:min IS NULL OR told_bytes >= :min))
SELECT pattern, rank, module, phase, category, detail, decided_by, size_bytes, growth, told_bytes, kept_bytes,
  told_allocations, first_step, last_step, steps, possible FROM told
WHERE NOT :text OR rank = (SELECT rank FROM told GROUP BY rank
  ORDER BY coalesce(sum(growth), 0) DESC, sum(kept_bytes) DESC, rank LIMIT 1)
ORDER BY CASE pattern WHEN 'growth' THEN 0 WHEN 'some_steps' THEN 1 WHEN 'once' THEN 2 ELSE 3 END,
  rank, growth DESC, told_bytes DESC, module, phase, category, size_bytes

-- name: survivors_growth
-- How the rank that grows most does, or :rank, and its largest owner in words; last, how many grow, and which.
WITH grown AS MATERIALIZED (SELECT * FROM rank_growth WHERE bytes > 0 AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT g.rank, g.from_step, g.to_step, g.bytes, g.allocated_bytes, g.grown_bytes, g.owners,
  CAST((g.bytes + g.to_step - g.from_step - 1) / (g.to_step - g.from_step) AS INTEGER) AS per_step_bytes,
  o.bytes, o.per_step_bytes, o.category || coalesce('/' || o.detail, '') || iif(o.module = '', '', ' of ' || o.module)
    || coalesce(' from ' || replace(o.phase, '_', ' '), ''),
  (SELECT count(*) FROM grown), (SELECT rank_ranges(rank) FROM grown)
FROM grown g JOIN owner_growth o ON o.rank = g.rank AND o.grows
ORDER BY g.per_step_bytes DESC, g.rank, o.bytes DESC LIMIT 1

-- name: survivors_owners
-- Each with the line that made the most of what it holds more.
SELECT module, phase, category, detail, bytes, CAST(round(per_step_bytes) AS INTEGER), allocations, births,
  (SELECT l.file || coalesce(':' || l.line, '') FROM allocation a INDEXED BY allocation_by_end JOIN site_line l ON l.site_id = a.site_id
    WHERE a.rank = g.rank AND a.last_step >= g.to_step AND a.category = g.category AND a.detail IS g.detail AND a.module_id IS g.module_id
      AND a.period > (SELECT e.period FROM step e WHERE e.rank = g.rank AND e.step = g.from_step)
    GROUP BY l.file, l.line ORDER BY sum(a.bytes) DESC LIMIT 1)
FROM owner_growth g WHERE rank = :rank AND grows
ORDER BY bytes DESC, module, phase, category

-- name: survivors_steps
SELECT coalesce(max(steps), 0) FROM whole_steps

-- name: survivors_ranks
SELECT count(*) FROM rank_steps

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
-- How the rank that grows most does, or :rank, and its largest owner in words; last, how many grow, and which. unit: of ranks
-- without steps a call is one.
WITH grown AS MATERIALIZED (
  SELECT 'step' AS unit, rank, from_step AS first, to_step AS last, bytes, allocated_bytes FROM rank_growth
  WHERE bytes > 0 AND (:rank IS NULL OR rank_in(rank, :rank))
  UNION ALL
  SELECT 'call', rank, from_call, to_call, sum(bytes) FILTER (WHERE grows) AS bytes, sum(bytes) FILTER (WHERE grows)
  FROM owner_growth_by_call WHERE :rank IS NULL OR rank_in(rank, :rank) GROUP BY rank HAVING sum(bytes) FILTER (WHERE grows) > 0),
owner AS (
  SELECT rank, bytes, category, detail, module, phase FROM owner_growth WHERE grows
  UNION ALL
  SELECT rank, bytes, category, detail, module, phase FROM owner_growth_by_call WHERE grows)
SELECT g.rank, g.first, g.last, g.bytes, g.allocated_bytes, g.unit,
  CAST((g.bytes + g.last - g.first - 1) / (g.last - g.first) AS INTEGER) AS each_bytes, o.bytes,
  o.category || coalesce('/' || o.detail, '') || iif(o.module = '', '', ' of ' || o.module)
    || coalesce(' from ' || replace(o.phase, '_', ' '), ''),
  (SELECT count(*) FROM grown), (SELECT rank_ranges(rank) FROM grown)
FROM grown g JOIN owner o ON o.rank = g.rank
ORDER BY each_bytes DESC, g.rank, o.bytes DESC LIMIT 1

-- name: survivors_owners
-- Each with the line that made the most of what it holds more.
WITH growing AS (
  SELECT module, phase, category, detail, module_id, rank, bytes, per_step_bytes AS each_bytes, allocations, births,
    to_step AS last_step, NULL AS last_ns,
    (SELECT e.period FROM step e WHERE e.rank = g.rank AND e.step = g.from_step) AS after_period, NULL AS after_ns
  FROM owner_growth g WHERE rank = :rank AND grows
  UNION ALL
  SELECT module, phase, category, detail, module_id, rank, bytes, per_call_bytes, allocations, births, NULL,
    (SELECT max(c.end_ns) FROM outermost_call c WHERE c.rank = g.rank), NULL,
    (SELECT c.end_ns FROM outermost_call c WHERE c.rank = g.rank AND c.call = g.from_call)
  FROM owner_growth_by_call g WHERE rank = :rank AND grows)
SELECT module, phase, category, detail, bytes, CAST(round(each_bytes) AS INTEGER), allocations, births, iif(g.last_ns IS NULL,
  (SELECT l.file || coalesce(':' || l.line, '') FROM allocation a JOIN site_line l ON l.site_id = a.site_id
    WHERE a.rank = g.rank AND a.last_step >= g.last_step AND a.category = g.category AND a.detail IS g.detail
      AND a.module_id IS g.module_id AND a.period > g.after_period
    GROUP BY l.file, l.line ORDER BY sum(a.bytes) DESC LIMIT 1),
  (SELECT l.file || coalesce(':' || l.line, '') FROM allocation a JOIN site_line l ON l.site_id = a.site_id
    WHERE a.rank = g.rank AND a.alloc_ns > g.after_ns AND coalesce(a.free_ns > g.last_ns, 1) AND a.category = g.category
      AND a.detail IS g.detail AND a.module_id IS g.module_id
    GROUP BY l.file, l.line ORDER BY sum(a.bytes) DESC LIMIT 1))
FROM growing g ORDER BY bytes DESC, module, phase, category

-- name: survivors_calls
SELECT coalesce(max(call) + 1, 0) FROM outermost_call

-- name: survivors_steps
SELECT coalesce(max(steps), 0) FROM whole_steps

-- name: survivors_ranks
SELECT count(*) FROM rank_steps

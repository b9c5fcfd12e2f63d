-- name: code_held
-- What was allocated at the highest point of each rank's life. Where no call stack was recorded, modules stand in for them.
CREATE TEMP VIEW IF NOT EXISTS held AS
WITH highest AS (
  SELECT l.rank, coalesce(p.same_as, p.period) AS period FROM life l JOIN period p ON p.rank = l.rank AND p.period = l.peak_period)
SELECT rank, b.site_id, b.category, b.module_id, b.bytes, b.allocations FROM highest JOIN peak_site b USING (rank, period)
UNION ALL
SELECT rank, NULL, b.category, b.module_id, b.bytes, b.allocations FROM highest h JOIN peak_owner b USING (rank, period)
WHERE NOT EXISTS (SELECT 1 FROM peak_site s WHERE s.rank = h.rank AND s.period = h.period)

-- name: code_has_stacks
SELECT EXISTS (SELECT 1 FROM held WHERE rank_in(rank, :ranks)), EXISTS (SELECT 1 FROM held WHERE rank_in(rank, :ranks) AND site_id IS NOT NULL)

-- name: code_folded
-- That, a line for each call stack, operator and category, or module and category: frames from the outermost to the innermost,
-- parted by semicolons.
WITH RECURSIVE down(frame_id, stack) AS (
  SELECT id, replace(function || ' (' || file || coalesce(':' || line, '') || ')', ';', ',') FROM frame WHERE caller_id IS NULL
  UNION ALL
  SELECT f.id, d.stack || ';' || replace(f.function || ' (' || f.file || coalesce(':' || f.line, '') || ')', ';', ',')
  FROM down d JOIN frame f ON f.caller_id = d.frame_id)
SELECT iif((SELECT count(DISTINCT rank) FROM held WHERE rank_in(rank, :ranks)) > 1, 'rank ' || b.rank || ';', '') || coalesce(d.stack,
    iif(b.site_id IS NULL, '(not recorded)' || coalesce(';' || replace(m.name, ';', ','), ''), '(no Python code)'))
    || coalesce(';' || s.operator_name, '') || iif(s.stack_of = 'forward', ' (backward)', '') || ';' || replace(b.category, ';', ',')
  AS folded, sum(b.bytes)
FROM held b LEFT JOIN site s ON s.id = b.site_id LEFT JOIN down d ON d.frame_id = s.frame_id
LEFT JOIN module_name m ON m.id = b.module_id
WHERE rank_in(b.rank, :ranks) GROUP BY b.rank, folded HAVING sum(b.bytes) > 0 ORDER BY b.rank, folded

-- name: code_frames
SELECT id, function, file, coalesce(line, 0) FROM frame WHERE rank_in(rank, :ranks)

-- name: code_samples
-- The same with numbers: the stack by its innermost frame.
SELECT b.rank, s.frame_id, s.operator_name, s.stack_of, b.category, m.name, sum(b.bytes), sum(b.allocations)
FROM held b LEFT JOIN site s ON s.id = b.site_id LEFT JOIN module_name m ON m.id = b.module_id
WHERE rank_in(b.rank, :ranks) GROUP BY b.rank, b.site_id, b.category, b.module_id

-- name: code_stack
-- The frames of a call stack, the innermost first.
WITH RECURSIVE up(id, place) AS (
  SELECT :frame, 0
  UNION ALL
  SELECT f.caller_id, up.place + 1 FROM up JOIN frame f ON f.id = up.id WHERE f.caller_id IS NOT NULL)
SELECT f.id, f.function, f.file, coalesce(f.line, 0) FROM up JOIN frame f ON f.id = up.id ORDER BY up.place

-- name: code_peak_ns
SELECT p.peak_ns FROM life l JOIN period p ON p.rank = l.rank AND p.period = l.peak_period WHERE rank_in(l.rank, :ranks)
ORDER BY l.peak_allocated_bytes DESC, l.rank LIMIT 1

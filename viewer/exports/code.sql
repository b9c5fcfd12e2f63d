-- name: code_folded
-- What was allocated at the highest point of each rank's life, a line for each call stack, operator and category: frames from the
-- outermost to the innermost, parted by semicolons.
WITH RECURSIVE chosen AS (SELECT l.rank, l.peak_period AS period FROM life l WHERE rank_in(l.rank, :ranks)),
down(frame_id, stack) AS (
  SELECT id, replace(function || ' (' || file || coalesce(':' || line, '') || ')', ';', ',') FROM frame WHERE caller_id IS NULL
  UNION ALL
  SELECT f.id, d.stack || ';' || replace(f.function || ' (' || f.file || coalesce(':' || f.line, '') || ')', ';', ',')
  FROM down d JOIN frame f ON f.caller_id = d.frame_id)
SELECT iif((SELECT count(*) FROM chosen) > 1, 'rank ' || b.rank || ';', '') || coalesce(d.stack,
    iif(b.site_id IS NULL, '(not recorded)', '(no Python code)')) || coalesce(';' || s.operator_name, '')
    || iif(s.stack_of = 'forward', ' (backward)', '') || ';' || replace(b.category, ';', ',') AS stack, sum(b.bytes)
FROM chosen c JOIN period p ON p.rank = c.rank AND p.period = c.period
JOIN peak_site b ON b.rank = c.rank AND b.period = coalesce(p.same_as, p.period)
LEFT JOIN site s ON s.id = b.site_id LEFT JOIN down d ON d.frame_id = s.frame_id
GROUP BY b.rank, stack HAVING sum(b.bytes) > 0 ORDER BY b.rank, stack

-- name: code_frames
SELECT id, function, file, coalesce(line, 0) FROM frame WHERE rank_in(rank, :ranks)

-- name: code_samples
-- The same with numbers: the stack by its innermost frame.
SELECT b.rank, s.frame_id, s.operator_name, s.stack_of, b.category, m.name, sum(b.bytes), sum(b.allocations)
FROM life l JOIN period p ON p.rank = l.rank AND p.period = l.peak_period
JOIN peak_site b ON b.rank = l.rank AND b.period = coalesce(p.same_as, p.period)
LEFT JOIN site s ON s.id = b.site_id LEFT JOIN module_name m ON m.id = b.module_id
WHERE rank_in(l.rank, :ranks) GROUP BY b.rank, b.site_id, b.category, b.module_id

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

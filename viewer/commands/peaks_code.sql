-- name: peaks_by_line
-- Each line with the category that most of its bytes are of. Text has file:line in one, of installed packages without the place
-- where they are installed.
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank))),
part AS (
  SELECT c.rank, c.step, c.period, c.place, c.peak_allocated_bytes, b.file, b.line, b.function, b.code_of, b.category, sum(b.bytes) AS bytes,
    sum(b.allocations) AS allocations, coalesce(sum(b.bytes) FILTER (WHERE b.stack_of = 'forward'), 0) AS backward_bytes
  FROM chosen c CROSS JOIN site_at_peak b ON b.rank = c.rank AND b.period = c.period
  GROUP BY c.rank, c.period, b.file, b.line, b.function, b.category),
whole AS (
  SELECT rank, step, period, place, peak_allocated_bytes, file, line, function, code_of, category, max(bytes), sum(bytes) AS bytes,
    sum(allocations) AS allocations, sum(backward_bytes) AS backward_bytes FROM part GROUP BY rank, period, file, line, function)
SELECT rank, step, iif(:text, coalesce(code_place(file, line), '(not recorded)'), file), line, function, bytes,
  bytes * 1.0 / peak_allocated_bytes, category, allocations, nullif(backward_bytes, 0), iif(:source, source_line(file, line), NULL),
  code_of, period, iif(:text AND step IS NOT NULL, NULL, place)
FROM whole ORDER BY rank, bytes DESC, file, line

-- name: peaks_by_operator
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank))),
part AS (
  SELECT c.rank, c.step, c.period, c.place, c.peak_allocated_bytes, b.operator_name, b.category, sum(b.bytes) AS bytes,
    sum(b.allocations) AS allocations
  FROM chosen c CROSS JOIN site_at_peak b ON b.rank = c.rank AND b.period = c.period
  GROUP BY c.rank, c.period, b.operator_name, b.category),
whole AS (
  SELECT rank, step, period, place, peak_allocated_bytes, operator_name, category, max(bytes), sum(bytes) AS bytes,
    sum(allocations) AS allocations FROM part GROUP BY rank, period, operator_name)
SELECT rank, step, coalesce(operator_name, iif(:text, '(not recorded)', NULL)), bytes, bytes * 1.0 / peak_allocated_bytes, category,
  allocations, period, iif(:text AND step IS NOT NULL, NULL, place)
FROM whole ORDER BY rank, bytes DESC, operator_name

-- name: peaks_by_stack
-- Text has the frames of the user's code, data all of them.
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank))),
named AS MATERIALIZED (SELECT frame_id, iif(:text, path, full_path) AS path FROM stack_path),
part AS (
  SELECT c.rank, c.step, c.period, c.place, c.peak_allocated_bytes, n.path, b.category, sum(b.bytes) AS bytes,
    sum(b.allocations) AS allocations
  FROM chosen c CROSS JOIN site_at_peak b ON b.rank = c.rank AND b.period = c.period
  LEFT JOIN named n ON n.frame_id = b.frame_id
  GROUP BY c.rank, c.period, n.path, b.category),
whole AS (
  SELECT rank, step, period, place, peak_allocated_bytes, path, category, max(bytes), sum(bytes) AS bytes,
    sum(allocations) AS allocations FROM part GROUP BY rank, period, path)
SELECT rank, step, coalesce(path, iif(:text, '(not recorded)', NULL)), bytes, bytes * 1.0 / peak_allocated_bytes, category,
  allocations, period, iif(:text AND step IS NOT NULL, NULL, place)
FROM whole ORDER BY rank, bytes DESC, path

-- name: peaks_without_code
-- Of what was allocated at these peaks, the bytes whose site is not known: all, before recording began, and whether any is known.
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT coalesce(sum(b.bytes) FILTER (WHERE b.file IS NULL), 0), sum(b.bytes), (SELECT count(*) FROM site),
  (SELECT state || coalesce(': ' || reason, '') FROM source WHERE source = 'torch_sites' ORDER BY rank LIMIT 1)
FROM chosen c CROSS JOIN site_at_peak b ON b.rank = c.rank AND b.period = c.period

-- name: peaks_idle_period
-- Of each rank the highest step that uses were followed in, or the one that is asked for: rank, period.
SELECT count(*), (SELECT count(*) FROM use_window), (SELECT group_concat(step, ', ') FROM (
    SELECT DISTINCT step FROM followed_period WHERE kind = 'step' ORDER BY step LIMIT 10)),
  (SELECT state || coalesce(': ' || reason, '') FROM source WHERE source = 'torch_uses' ORDER BY rank LIMIT 1)
FROM followed_period p
WHERE (:rank IS NULL OR rank_in(p.rank, :rank)) AND iif(:step IS NULL AND :period IS NULL, p.kind = 'step', p.period = :period OR (p.kind = 'step' AND p.step = :step))

-- name: peaks_by_idle
-- What nobody used at that peak, by where it was made and what used it last. Text has file:line in one, as peaks_by_line.
WITH chosen AS (
  SELECT rank, period FROM (
    SELECT p.rank, p.period, row_number() OVER (PARTITION BY p.rank ORDER BY p.peak_allocated_bytes DESC, p.period) AS place
    FROM followed_period p
    WHERE (:rank IS NULL OR rank_in(p.rank, :rank))
      AND iif(:step IS NULL AND :period IS NULL, p.kind = 'step', p.period = :period OR (p.kind = 'step' AND p.step = :step)))
  WHERE place = 1),
part AS (
  SELECT i.rank, i.step, i.period, i.place, i.state, l.file, l.line, l.function, l.code_of, u.operator_name AS used_by, u.file AS used_file,
    u.line AS used_line, i.category, i.bytes, i.idle_ns, i.idle_until_ns - i.peak_ns AS until_ns, i.use_step
  FROM chosen c JOIN idle_at_peak i ON i.rank = c.rank AND i.period = c.period
  LEFT JOIN site_line l ON l.site_id = i.site_id LEFT JOIN site_line u ON u.site_id = i.last_use_site_id
  WHERE i.state <> 'kept'),
whole AS (
  SELECT rank, step, period, place, state, file, line, function, code_of, used_by, used_file, used_line, max(bytes) AS largest, category,
    sum(bytes) AS bytes, count(*) AS allocations, min(idle_ns) AS idle_ns, min(until_ns) AS until_ns, max(use_step) AS use_step
  FROM part GROUP BY rank, state, file, line, function, used_by, used_file, used_line)
SELECT w.rank, w.step, iif(:text, coalesce(code_place(file, line), '(not recorded)'), file), line, function, bytes, bytes * 1.0 / p.peak_allocated_bytes, state,
  iif(:text, used_by || coalesce(' at ' || code_place(used_file, used_line), ''), used_by), used_file, used_line, idle_ns, until_ns, category, allocations, code_of, use_step, w.period,
  iif(:text AND w.step IS NOT NULL, NULL, w.place)
FROM whole w JOIN period p ON p.rank = w.rank AND p.period = w.period
ORDER BY w.rank, bytes DESC, file, line

-- name: peaks_idle_sums
-- Of the same peaks: at the peak, late, early, hidden and kept bytes.
WITH chosen AS (
  SELECT rank, period, peak_allocated_bytes, sees_launches FROM (
    SELECT p.rank, p.period, p.peak_allocated_bytes, p.sees_launches, row_number() OVER (PARTITION BY p.rank ORDER BY p.peak_allocated_bytes DESC, p.period) AS place
    FROM followed_period p
    WHERE (:rank IS NULL OR rank_in(p.rank, :rank))
      AND iif(:step IS NULL AND :period IS NULL, p.kind = 'step', p.period = :period OR (p.kind = 'step' AND p.step = :step)))
  WHERE place = 1)
SELECT (SELECT sum(peak_allocated_bytes) FROM chosen), coalesce(sum(i.bytes) FILTER (WHERE i.state IN ('late', 'early')), 0),
  coalesce(sum(i.bytes) FILTER (WHERE i.state = 'hidden'), 0), coalesce(sum(i.bytes) FILTER (WHERE i.state = 'kept'), 0),
  (SELECT min(sees_launches) FROM chosen)
FROM chosen c JOIN idle_at_peak i ON i.rank = c.rank AND i.period = c.period

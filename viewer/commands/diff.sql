-- Two runs, or two ranks: side 0 is the first one (main), 1 the second (other). key_rank is what the sides are aligned by:
-- the rank itself, or 0 where it is about one rank (:one), which may be held against another one.

-- name: diff_chosen
-- Of each rank the period that is compared: the highest of its life, :step, or :period_0 and :period_1. place: in words, outside
-- of steps.
CREATE TEMP TABLE chosen(side, rank, key_rank, period, step, rows_of, place, kind, bytes)

-- name: diff_choose
INSERT INTO chosen
SELECT 0, p.rank, iif(:one, 0, p.rank), p.period, w.step, w.rows_of, iif(w.kind = 'step', NULL, w.place), p.kind,
  p.peak_allocated_bytes
FROM main.life l JOIN main.period p ON p.rank = l.rank AND p.period = CASE WHEN :period_0 IS NOT NULL THEN :period_0
  WHEN :step IS NOT NULL THEN (SELECT s.period FROM main.step s WHERE s.rank = l.rank AND s.step = :step)
  ELSE l.peak_period END
JOIN main.period_place w ON w.rank = p.rank AND w.period = p.period
WHERE rank_in(p.rank, :rank_0) AND p.peak_allocated_bytes IS NOT NULL
UNION ALL
SELECT 1, p.rank, iif(:one, 0, p.rank), p.period, w.step, w.rows_of, iif(w.kind = 'step', NULL, w.place), p.kind,
  p.peak_allocated_bytes
FROM other.life l JOIN other.period p ON p.rank = l.rank AND p.period = CASE WHEN :period_1 IS NOT NULL THEN :period_1
  WHEN :step IS NOT NULL THEN (SELECT s.period FROM other.step s WHERE s.rank = l.rank AND s.step = :step)
  ELSE l.peak_period END
JOIN other.period_place w ON w.rank = p.rank AND w.period = p.period
WHERE rank_in(p.rank, :rank_1) AND p.peak_allocated_bytes IS NOT NULL

-- name: diff_cells
-- Modules are aligned by FQN and, where several models have the same one, by their order; lines by file, number and function;
-- periods by what they are (align). CROSS JOIN: in this order, so that a rank's modules are not held against all ranks.
CREATE TEMP TABLE cells(side, what, key_rank, step, place, align, module, nth, label, phase, category, bytes, own)

-- name: diff_fill
INSERT INTO cells
SELECT 0, iif(kind = 'step', 'step', 'period'), iif(:one, 0, rank), iif(kind = 'step', step, NULL),
  iif(kind = 'step', NULL, (SELECT place FROM main.period_place w WHERE w.rank = q.rank AND w.period = q.period)),
  kind || iif(kind IN ('step', 'between', 'cut'), ' ' || coalesce(step, ''), '') || ' ' || nth, NULL, 0, NULL, NULL, NULL,
  peak_allocated_bytes, NULL
FROM (SELECT p.*, row_number() OVER (PARTITION BY rank, kind, step ORDER BY period) AS nth FROM main.period p) q
WHERE rank_in(rank, :rank_0) AND peak_allocated_bytes IS NOT NULL AND :period_0 IS NULL
  AND (:step IS NULL OR kind = 'step' AND step = :step)
UNION ALL
SELECT 0, 'category', c.key_rank, c.step, c.place, NULL, NULL, 0, NULL, NULL, b.category, b.bytes, NULL
FROM chosen c JOIN main.peak_category b ON b.rank = c.rank AND b.period = c.rows_of AND b.module_id IS NULL
  AND b.phase = c.kind WHERE c.side = 0
UNION ALL
SELECT 0, 'module', c.key_rank, c.step, c.place, NULL, m.fqn, m.nth,
  (SELECT label FROM main.module_name l WHERE l.id = m.id), p.phase, NULL, p.allocated_bytes, p.own_bytes
FROM chosen c CROSS JOIN main.peak p ON p.rank = c.rank AND p.period = c.rows_of
CROSS JOIN (SELECT id, fqn, row_number() OVER (PARTITION BY rank, fqn ORDER BY id) AS nth FROM main.module) m
  ON m.id = p.module_id WHERE c.side = 0
UNION ALL
SELECT 0, 'line', c.key_rank, c.step, c.place, NULL, l.file || coalesce(':' || l.line, '') || coalesce(' ' || l.function, ''), 0,
  l.file || coalesce(':' || l.line, '') || coalesce(' ' || l.function, ''), NULL, NULL, sum(l.bytes), NULL
FROM chosen c JOIN main.line_at_peak l ON l.rank = c.rank AND l.period = c.period
WHERE c.side = 0 AND l.file IS NOT NULL AND EXISTS (SELECT 1 FROM main.site) AND EXISTS (SELECT 1 FROM other.site)
GROUP BY c.key_rank, c.step, c.place, l.file, l.line, l.function
UNION ALL
SELECT 1, iif(kind = 'step', 'step', 'period'), iif(:one, 0, rank), iif(kind = 'step', step, NULL),
  iif(kind = 'step', NULL, (SELECT place FROM other.period_place w WHERE w.rank = q.rank AND w.period = q.period)),
  kind || iif(kind IN ('step', 'between', 'cut'), ' ' || coalesce(step, ''), '') || ' ' || nth, NULL, 0, NULL, NULL, NULL,
  peak_allocated_bytes, NULL
FROM (SELECT p.*, row_number() OVER (PARTITION BY rank, kind, step ORDER BY period) AS nth FROM other.period p) q
WHERE rank_in(rank, :rank_1) AND peak_allocated_bytes IS NOT NULL AND :period_0 IS NULL
  AND (:step IS NULL OR kind = 'step' AND step = :step)
UNION ALL
SELECT 1, 'category', c.key_rank, c.step, c.place, NULL, NULL, 0, NULL, NULL, b.category, b.bytes, NULL
FROM chosen c JOIN other.peak_category b ON b.rank = c.rank AND b.period = c.rows_of AND b.module_id IS NULL
  AND b.phase = c.kind WHERE c.side = 1
UNION ALL
SELECT 1, 'module', c.key_rank, c.step, c.place, NULL, m.fqn, m.nth,
  (SELECT label FROM other.module_name l WHERE l.id = m.id), p.phase, NULL, p.allocated_bytes, p.own_bytes
FROM chosen c CROSS JOIN other.peak p ON p.rank = c.rank AND p.period = c.rows_of
CROSS JOIN (SELECT id, fqn, row_number() OVER (PARTITION BY rank, fqn ORDER BY id) AS nth FROM other.module) m
  ON m.id = p.module_id WHERE c.side = 1
UNION ALL
SELECT 1, 'line', c.key_rank, c.step, c.place, NULL, l.file || coalesce(':' || l.line, '') || coalesce(' ' || l.function, ''), 0,
  l.file || coalesce(':' || l.line, '') || coalesce(' ' || l.function, ''), NULL, NULL, sum(l.bytes), NULL
FROM chosen c JOIN other.line_at_peak l ON l.rank = c.rank AND l.period = c.period
WHERE c.side = 1 AND l.file IS NOT NULL AND EXISTS (SELECT 1 FROM main.site) AND EXISTS (SELECT 1 FROM other.site)
GROUP BY c.key_rank, c.step, c.place, l.file, l.line, l.function

-- name: diff_changes
-- Steps are aligned by number, other periods by what they come after, categories by name. A module that only one side has changes by what it owns: the device's peak
-- in its phase is not its doing. A rank that only one side has is not compared. Text says once what is the same on several.
WITH pairs AS (
  SELECT what, key_rank, module, nth, max(label) AS label, phase, category,
    max(step) FILTER (WHERE side = 0) AS step_a, max(step) FILTER (WHERE side = 1) AS step_b,
    max(place) FILTER (WHERE side = 0) AS place_a, max(place) FILTER (WHERE side = 1) AS place_b,
    max(bytes) FILTER (WHERE side = 0) AS a, max(bytes) FILTER (WHERE side = 1) AS b,
    max(own) FILTER (WHERE side = 0) AS own_a, max(own) FILTER (WHERE side = 1) AS own_b
  FROM cells GROUP BY what, key_rank, module, nth, phase, category, align),
told AS (
  SELECT *, CASE WHEN what IN ('category', 'line') THEN coalesce(b, 0) - coalesce(a, 0) ELSE b - a END AS change,
    coalesce(own_b, 0) - coalesce(own_a, 0) AS own_change,
    CASE what WHEN 'step' THEN 0 WHEN 'period' THEN 1 WHEN 'category' THEN 2 WHEN 'line' THEN 3 ELSE 4 END AS place FROM pairs),
both AS (SELECT key_rank FROM chosen WHERE side = 0 INTERSECT SELECT key_rank FROM chosen WHERE side = 1)
SELECT what, iif(:one, NULL, min(key_rank)), CASE WHEN :one THEN NULL
    WHEN count(*) > 1 AND count(*) = (SELECT count(*) FROM both) THEN 'all'
    WHEN length(rank_ranges(key_rank)) > 24 THEN count(*) || ' ranks' ELSE rank_ranges(key_rank) END,
  step_a, step_b, place_a, place_b, iif(what = 'line', module, NULL), CASE WHEN what = 'line' THEN NULL WHEN :text THEN label ELSE module END,
  phase, category, a, b, change, own_a, own_b, iif(what = 'module', own_change, NULL)
FROM told JOIN both USING (key_rank)
WHERE NOT (what IN ('step', 'period') AND (a IS NULL OR b IS NULL)) AND max(abs(coalesce(change, 0)), abs(own_change)) >= :min
GROUP BY what, step_a, step_b, place_a, place_b, module, nth, label, phase, category, a, b, own_a, own_b, iif(:text, NULL, key_rank)
ORDER BY place, max(abs(coalesce(change, 0)), abs(own_change)) DESC, key_rank, step_a, place_a, module, phase, category

-- name: diff_highest
-- The highest peak of each side.
SELECT side, rank, coalesce(place, 'step ' || step), max(bytes) FROM chosen GROUP BY side ORDER BY side

-- name: diff_alone
-- What has no partner: steps of ranks that both sides have, and then ranks, by side; and how many ranks both have.
SELECT (
    SELECT count(*)
    FROM (
        SELECT rank, step FROM main.step WHERE rank IN (SELECT rank FROM other.rank) EXCEPT
        SELECT rank, step FROM other.step)), (
    SELECT count(*)
    FROM (
        SELECT rank, step FROM other.step WHERE rank IN (SELECT rank FROM main.rank) EXCEPT
        SELECT rank, step FROM main.step)), (
    SELECT count(*) FROM (SELECT rank FROM main.rank EXCEPT SELECT rank FROM other.rank)), (
    SELECT count(*) FROM (SELECT rank FROM other.rank EXCEPT SELECT rank FROM main.rank)), (
    SELECT count(*) FROM (SELECT rank FROM main.rank INTERSECT SELECT rank FROM other.rank))

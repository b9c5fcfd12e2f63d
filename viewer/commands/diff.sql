-- Two runs, or two ranks: side 0 is the first one (main), 1 the second (other). key_rank is what the sides are aligned by:
-- the rank itself, or 0 where one rank is held against another one.

-- name: diff_chosen
-- Of each rank the step that is compared: the highest, or :step.
CREATE TEMP TABLE chosen(side, rank, key_rank, step, rows_step, bytes)

-- name: diff_choose
INSERT INTO chosen
SELECT 0, rank, iif(:rank_0 IS NULL, rank, 0), step, rows_step, bytes FROM (
  SELECT s.rank, s.step, coalesce(s.same_as, s.step) AS rows_step, s.peak_allocated_bytes AS bytes,
    row_number() OVER (PARTITION BY s.rank ORDER BY s.peak_allocated_bytes DESC, s.step) AS place
  FROM main.step s JOIN main.rank k ON k.rank = s.rank WHERE (:rank_0 IS NULL OR s.rank = :rank_0)
    AND s.peak_allocated_bytes IS NOT NULL AND (:step IS NULL OR s.step = :step))
WHERE place = 1
UNION ALL
SELECT 1, rank, iif(:rank_1 IS NULL, rank, 0), step, rows_step, bytes FROM (
  SELECT s.rank, s.step, coalesce(s.same_as, s.step) AS rows_step, s.peak_allocated_bytes AS bytes,
    row_number() OVER (PARTITION BY s.rank ORDER BY s.peak_allocated_bytes DESC, s.step) AS place
  FROM other.step s JOIN other.rank k ON k.rank = s.rank WHERE (:rank_1 IS NULL OR s.rank = :rank_1)
    AND s.peak_allocated_bytes IS NOT NULL AND (:step IS NULL OR s.step = :step))
WHERE place = 1

-- name: diff_cells
-- Modules are aligned by FQN and, where several models have the same one, by their order.
CREATE TEMP TABLE cells(side, what, key_rank, step, module, nth, phase, category, bytes, own)

-- name: diff_fill
INSERT INTO cells
SELECT 0, 'step', iif(:rank_0 IS NULL, s.rank, 0), s.step, NULL, 0, NULL, NULL, s.peak_allocated_bytes, NULL
FROM main.step s JOIN main.rank k ON k.rank = s.rank WHERE (:rank_0 IS NULL OR s.rank = :rank_0)
  AND s.peak_allocated_bytes IS NOT NULL AND (:step IS NULL OR s.step = :step)
UNION ALL
SELECT 0, 'category', c.key_rank, c.step, NULL, 0, NULL, b.category, b.bytes, NULL
FROM chosen c JOIN main.peak_category b ON b.rank = c.rank AND b.step = c.rows_step AND b.module_id IS NULL
  AND b.phase = 'step' WHERE c.side = 0
UNION ALL
SELECT 0, 'module', c.key_rank, c.step, m.fqn, m.nth, p.phase, NULL, p.allocated_bytes, p.own_bytes
FROM chosen c JOIN main.peak p ON p.rank = c.rank AND p.step = c.rows_step
JOIN (SELECT id, fqn, row_number() OVER (PARTITION BY rank, fqn ORDER BY id) AS nth FROM main.module) m
  ON m.id = p.module_id WHERE c.side = 0
UNION ALL
SELECT 1, 'step', iif(:rank_1 IS NULL, s.rank, 0), s.step, NULL, 0, NULL, NULL, s.peak_allocated_bytes, NULL
FROM other.step s JOIN other.rank k ON k.rank = s.rank WHERE (:rank_1 IS NULL OR s.rank = :rank_1)
  AND s.peak_allocated_bytes IS NOT NULL AND (:step IS NULL OR s.step = :step)
UNION ALL
SELECT 1, 'category', c.key_rank, c.step, NULL, 0, NULL, b.category, b.bytes, NULL
FROM chosen c JOIN other.peak_category b ON b.rank = c.rank AND b.step = c.rows_step AND b.module_id IS NULL
  AND b.phase = 'step' WHERE c.side = 1
UNION ALL
SELECT 1, 'module', c.key_rank, c.step, m.fqn, m.nth, p.phase, NULL, p.allocated_bytes, p.own_bytes
FROM chosen c JOIN other.peak p ON p.rank = c.rank AND p.step = c.rows_step
JOIN (SELECT id, fqn, row_number() OVER (PARTITION BY rank, fqn ORDER BY id) AS nth FROM other.module) m
  ON m.id = p.module_id WHERE c.side = 1

-- name: diff_changes
-- Steps are aligned by number, categories by name. A module that only one side has changes by what it owns: the device's peak
-- in its phase is not its doing. A rank that only one side has is not compared. Text says once what is the same on several.
WITH pairs AS (
  SELECT what, key_rank, module, nth, phase, category,
    max(step) FILTER (WHERE side = 0) AS step_a, max(step) FILTER (WHERE side = 1) AS step_b,
    max(bytes) FILTER (WHERE side = 0) AS a, max(bytes) FILTER (WHERE side = 1) AS b,
    max(own) FILTER (WHERE side = 0) AS own_a, max(own) FILTER (WHERE side = 1) AS own_b
  FROM cells GROUP BY what, key_rank, module, nth, phase, category, iif(what = 'step', step, NULL)),
told AS (
  SELECT *, CASE WHEN what = 'category' THEN coalesce(b, 0) - coalesce(a, 0) ELSE b - a END AS change,
    coalesce(own_b, 0) - coalesce(own_a, 0) AS own_change,
    CASE what WHEN 'step' THEN 0 WHEN 'category' THEN 1 ELSE 2 END AS place FROM pairs),
both AS (SELECT key_rank FROM chosen WHERE side = 0 INTERSECT SELECT key_rank FROM chosen WHERE side = 1)
SELECT what, iif(:rank_0 IS NULL, min(key_rank), NULL), CASE WHEN :rank_0 IS NOT NULL THEN NULL
    WHEN count(*) > 1 AND count(*) = (SELECT count(*) FROM both) THEN 'all'
    WHEN count(*) > 4 THEN count(*) || ' ranks' ELSE group_concat(key_rank, ', ') END,
  step_a, step_b, module, phase, category, a, b, change, own_a, own_b, iif(what = 'module', own_change, NULL)
FROM told JOIN both USING (key_rank)
WHERE NOT (what = 'step' AND (a IS NULL OR b IS NULL)) AND max(abs(coalesce(change, 0)), abs(own_change)) >= :min
GROUP BY what, step_a, step_b, module, nth, phase, category, a, b, own_a, own_b, iif(:text, NULL, key_rank)
ORDER BY place, max(abs(coalesce(change, 0)), abs(own_change)) DESC, key_rank, step_a, module, phase, category

-- name: diff_highest
-- The highest peak of each side.
SELECT side, rank, step, max(bytes) FROM chosen GROUP BY side ORDER BY side

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

-- name: summary_coverage
WITH chosen AS (SELECT * FROM shown_step WHERE asked IS NULL),
whole AS (SELECT coalesce(sum(peak_allocated_bytes), 0) AS bytes FROM chosen)
SELECT (SELECT coalesce(sum(events_lost), 0) FROM rank), (SELECT count(*) FROM gap), (SELECT coalesce(sum(o.bytes), 0)
  FROM chosen AS c JOIN peak_category AS o ON o.rank = c.rank AND o.step = c.rows_step AND o.module_id IS NULL AND
  o.phase = 'step' WHERE o.category = 'unattributed'), whole.bytes, (SELECT count(*) FROM rank), (SELECT
  coalesce(max(world_size), 0) FROM rank), (SELECT count(*) FROM rank WHERE fidelity = 'history')
FROM whole

-- name: summary_repeated
SELECT count(*), group_concat(same_as, ', ')
FROM (
    SELECT DISTINCT same_as FROM rank_steps CROSS JOIN step USING (rank) WHERE step = :step AND same_as IS NOT NULL
    ORDER BY same_as)

-- name: summary_peaks
SELECT c.rank, c.step, c.rows_step, c.peak_allocated_bytes, c.peak_reserved_bytes, c.peak_device_bytes, k.device_bytes, (
    SELECT place FROM peak_place AS w WHERE w.rank = c.rank AND w.step = c.step) FROM shown_step AS c
LEFT JOIN rank AS k ON k.rank = c.rank WHERE asked IS NULL ORDER BY c.rank

-- name: summary_owners
SELECT coalesce(m.label, '(no module)'), o.category || coalesce('/' || o.detail, ''), coalesce(o.phase, '(outside)'),
  sum(o.bytes) AS bytes, sum(o.allocations) FROM peak_owner AS o LEFT JOIN module_name AS m ON m.id = o.module_id
WHERE o.rank = :rank AND o.step = :step GROUP BY o.module_id, o.category, o.detail, o.phase ORDER BY bytes DESC, 1, 2, 3
LIMIT :limit

-- name: summary_has_steps
SELECT EXISTS(SELECT 1 FROM step)

-- name: summary_categories
-- Bytes of the highest rank, lowest and highest of all ranks, and then of the first eight ranks, where there are no more.
WITH at AS MATERIALIZED (
  SELECT rank, rows_step AS step, row_number() OVER (ORDER BY rank) AS place FROM shown_step WHERE asked IS NULL)
SELECT category, coalesce(sum(bytes) FILTER (WHERE rank = :worst), 0) AS worst,
  iif(count(*) < (SELECT count(*) FROM at), 0, min(bytes)), max(bytes),
  coalesce(sum(bytes) FILTER (WHERE place = 1), 0), coalesce(sum(bytes) FILTER (WHERE place = 2), 0),
  coalesce(sum(bytes) FILTER (WHERE place = 3), 0), coalesce(sum(bytes) FILTER (WHERE place = 4), 0),
  coalesce(sum(bytes) FILTER (WHERE place = 5), 0), coalesce(sum(bytes) FILTER (WHERE place = 6), 0),
  coalesce(sum(bytes) FILTER (WHERE place = 7), 0), coalesce(sum(bytes) FILTER (WHERE place = 8), 0)
FROM at CROSS JOIN peak_category USING (rank, step) WHERE module_id IS NULL AND phase = 'step'
GROUP BY category HAVING max(bytes) > 0 ORDER BY worst DESC, category

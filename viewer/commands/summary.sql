-- name: summary_coverage
WITH chosen AS (
  SELECT c.* FROM life l CROSS JOIN period_peak c ON c.rank = l.rank AND c.period = l.peak_period),
whole AS (SELECT coalesce(sum(peak_allocated_bytes), 0) AS bytes FROM chosen)
SELECT (SELECT coalesce(sum(events_lost), 0) FROM rank), (SELECT count(*) FROM gap), (SELECT coalesce(sum(o.bytes), 0)
  FROM chosen AS c JOIN peak_category AS o ON o.rank = c.rank AND o.period = c.rows_of AND o.module_id IS NULL AND
  o.phase = c.kind WHERE o.category = 'unattributed'), whole.bytes, (SELECT count(*) FROM rank), (SELECT
  coalesce(max(world_size), 0) FROM rank), (SELECT count(*) FROM rank WHERE fidelity = 'history'),
  (SELECT coalesce(rank_ranges(first, last), '') || iif((SELECT count(*) FROM missing_ranks) > 8, ',…', '')
    FROM (SELECT * FROM missing_ranks ORDER BY first LIMIT 8)),
  (SELECT 'run ' || attempt || ' of ' || (SELECT count(*) FROM attempt) || '; ' FROM attempt
    WHERE is_this AND (SELECT count(*) FROM attempt) > 1),
  coalesce((SELECT 'rehearsal of rank' || iif(count(*) > 1, 's ', ' ') || rank_ranges(rank) || ' of ' || max(world_size)
      || '; ' FROM rank WHERE rehearsal IS NOT NULL HAVING count(*) > 0), (SELECT 'from PyTorch''s memory snapshot' ||
      iif(count(*) > 1, 's', '') || '; ' FROM rank WHERE fidelity = 'snapshot' HAVING count(*) > 0))
FROM whole

-- name: summary_repeated
SELECT count(*), group_concat(same_as, ', ')
FROM (SELECT DISTINCT same_as FROM rank_steps CROSS JOIN step USING (rank) WHERE step = :step AND same_as IS NOT NULL
  ORDER BY same_as)

-- name: summary_peaks
-- The highest point of each rank's life, and beside it that of its steps.
SELECT c.rank, c.step, c.rows_of, c.peak_allocated_bytes, c.peak_reserved_bytes, c.peak_device_bytes, k.device_bytes,
  c.whereabouts, c.place, h.step, h.peak_allocated_bytes,
  (SELECT w.whereabouts FROM period_peak AS w WHERE w.rank = h.rank AND w.period = h.period)
FROM life AS l CROSS JOIN period_peak AS c ON c.rank = l.rank AND c.period = l.peak_period
LEFT JOIN rank AS k ON k.rank = c.rank LEFT JOIN period AS h ON h.rank = l.rank AND h.period = l.highest_step_period
ORDER BY c.rank

-- name: summary_owners
SELECT coalesce(m.label, '(no module)'), o.category ||
  coalesce('/' || o.detail, ''), coalesce(o.phase, '(outside)'), sum(o.bytes) AS bytes, sum(o.allocations)
FROM peak_owner AS o LEFT JOIN module_name AS m ON m.id = o.module_id
WHERE o.rank = :rank AND o.period = :period
GROUP BY o.module_id, o.category, o.detail, o.phase
ORDER BY bytes DESC, 1, 2, 3 LIMIT :limit

-- name: summary_categories
-- Bytes of the highest rank, lowest and highest of all ranks, and then of the first eight ranks, where there are no more.
WITH at AS MATERIALIZED (
  SELECT c.rank, c.rows_of AS period, c.kind AS phase, row_number() OVER (ORDER BY c.rank) AS place
  FROM life l CROSS JOIN period_peak c ON c.rank = l.rank AND c.period = l.peak_period)
SELECT category, coalesce(sum(bytes) FILTER (WHERE rank = :worst), 0) AS worst,
  iif(count(*) < (SELECT count(*) FROM at), 0, min(bytes)), max(bytes),
  coalesce(sum(bytes) FILTER (WHERE place = 1), 0), coalesce(sum(bytes) FILTER (WHERE place = 2), 0),
  coalesce(sum(bytes) FILTER (WHERE place = 3), 0), coalesce(sum(bytes) FILTER (WHERE place = 4), 0),
  coalesce(sum(bytes) FILTER (WHERE place = 5), 0), coalesce(sum(bytes) FILTER (WHERE place = 6), 0),
  coalesce(sum(bytes) FILTER (WHERE place = 7), 0), coalesce(sum(bytes) FILTER (WHERE place = 8), 0)
FROM at CROSS JOIN peak_category USING (rank, period, phase) WHERE module_id IS NULL
GROUP BY category HAVING max(bytes) > 0 ORDER BY worst DESC, category

-- name: summary_driver_peaks
-- Without PyTorch's allocations: the instant of each rank at which the driver's on its device were the highest, the highest
-- rank first, with the period and the range in which they became so.
CREATE TEMP TABLE driver_peak AS
WITH own AS (
  SELECT s.rank, s.bytes, s.alloc_ns, s.free_ns, s.phase_id FROM segment s JOIN rank r ON r.rank = s.rank
  WHERE s.device = coalesce(r.device, s.device)),
change AS (
  SELECT rank, alloc_ns AS at_ns, bytes, phase_id FROM own
  UNION ALL
  SELECT rank, free_ns, -bytes, NULL FROM own WHERE free_ns IS NOT NULL),
level AS (
  SELECT rank, at_ns, phase_id, bytes > 0 AS rises, sum(bytes) OVER (PARTITION BY rank ORDER BY at_ns) AS bytes FROM change),
highest AS (
  SELECT *, row_number() OVER (PARTITION BY rank ORDER BY bytes DESC, at_ns, rises DESC, phase_id IS NULL) AS place FROM level)
SELECT h.rank, h.at_ns, h.bytes, coalesce((SELECT w.place FROM period_place w JOIN period p USING (rank, period)
    WHERE p.rank = h.rank AND p.start_ns <= h.at_ns AND p.end_ns >= h.at_ns ORDER BY p.end_ns LIMIT 1),
    'outside of all periods') AS place,
  (SELECT label FROM range_label WHERE id = h.phase_id) AS range
FROM highest h WHERE h.place = 1 AND h.bytes > 0 ORDER BY h.bytes DESC, h.rank

-- name: summary_driver_highest
SELECT rank, bytes, place, range, (SELECT count(*) FROM driver_peak), (SELECT min(bytes) FROM driver_peak) FROM driver_peak
WHERE (:rank IS NULL OR rank_in(rank, :rank)) ORDER BY bytes DESC, rank LIMIT 1

-- name: summary_driver_owners
SELECT s.rank, s.owner, coalesce(l.label, '(outside)'), sum(s.bytes) AS bytes, count(*), d.place
FROM driver_peak d JOIN rank r ON r.rank = d.rank JOIN segment s ON s.rank = d.rank AND s.device = coalesce(r.device, s.device)
  AND s.alloc_ns <= d.at_ns AND (s.free_ns IS NULL OR s.free_ns > d.at_ns)
LEFT JOIN range_label l ON l.id = s.phase_id
WHERE (:rank IS NULL OR rank_in(d.rank, :rank))
GROUP BY s.rank, s.owner, l.label ORDER BY s.rank, bytes DESC, 2, 3

-- name: summary_has_peaks
SELECT EXISTS(SELECT 1 FROM life WHERE peak_allocated_bytes IS NOT NULL)

-- name: summary_device_use
SELECT l.rank, l.peak_device_bytes FROM life AS l WHERE l.peak_device_bytes IS NOT NULL
ORDER BY l.peak_device_bytes DESC, l.rank LIMIT 1

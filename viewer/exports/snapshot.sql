-- name: snapshot_segments
WITH live AS MATERIALIZED (SELECT device, address, bytes, stream, api, address + bytes AS until FROM segment WHERE rank
  = :rank AND owner = 'pytorch' AND free_ns IS NULL),
marked AS (SELECT *, api LIKE '%Map%' AND lag(until) OVER (PARTITION BY device ORDER BY address) IS address AS joined
  FROM live),
numbered AS (SELECT *, sum(NOT joined) OVER (PARTITION BY device ORDER BY address) AS n FROM marked),
whole AS (SELECT device, min(address) AS address, sum(bytes) AS bytes, min(stream) AS stream, count(*) > 1 AS parts FROM
  numbered GROUP BY device, n)
SELECT device, address, bytes, coalesce(stream, 0), parts FROM whole ORDER BY device, address

-- name: snapshot_blocks
SELECT a.device, a.address, a.bytes, a.requested_bytes, a.stream, a.free_ns IS NOT NULL, a.category ||
  coalesce(' (' || a.detail || ')', ''), (SELECT name FROM module_name WHERE id = a.module_id), (
    SELECT iif(kind = name, kind, kind || ' ' || name) FROM phase WHERE id = a.phase_id), (SELECT frame_id FROM site WHERE id = a.site_id)
FROM allocation AS a
WHERE a.rank = :rank AND a.complete_ns IS NULL ORDER BY a.device, a.address

-- name: snapshot_events
SELECT alloc_ns AS at, 1 AS place, 'alloc', address, requested_bytes, stream, category, a.category ||
  coalesce(' (' || a.detail || ')', ''), (SELECT name FROM module_name WHERE id = a.module_id), (
    SELECT iif(kind = name, kind, kind || ' ' || name) FROM phase WHERE id = a.phase_id), (SELECT frame_id FROM site WHERE id = a.site_id)
FROM allocation AS a
WHERE rank = :rank AND device = :device
UNION ALL
SELECT free_ns, 2, 'free_requested', address, requested_bytes, stream, NULL, a.category ||
  coalesce(' (' || a.detail || ')', ''), (SELECT name FROM module_name WHERE id = a.module_id), (
    SELECT iif(kind = name, kind, kind || ' ' || name) FROM phase WHERE id = a.phase_id), (SELECT frame_id FROM site WHERE id = a.site_id)
FROM allocation AS a
WHERE rank = :rank AND device = :device AND free_ns IS NOT NULL
UNION ALL
SELECT complete_ns, 3, 'free_completed', address, requested_bytes, stream, NULL, a.category ||
  coalesce(' (' || a.detail || ')', ''), (SELECT name FROM module_name WHERE id = a.module_id), (
    SELECT iif(kind = name, kind, kind || ' ' || name) FROM phase WHERE id = a.phase_id), (SELECT frame_id FROM site WHERE id = a.site_id)
FROM allocation AS a
WHERE rank = :rank AND device = :device AND complete_ns IS NOT NULL
UNION ALL
SELECT alloc_ns, 0, iif(api LIKE '%Map%', 'segment_map', 'segment_alloc'), address, bytes, coalesce(stream, 0),
  'unknown', NULL, NULL, NULL, NULL FROM segment WHERE rank = :rank AND device = :device AND owner = 'pytorch'
UNION ALL
SELECT free_ns, 4, iif(api LIKE '%Map%', 'segment_unmap', 'segment_free'), address, bytes, coalesce(stream, 0), NULL,
  NULL, NULL, NULL, NULL FROM segment WHERE rank = :rank AND device = :device AND owner = 'pytorch' AND free_ns IS NOT NULL
UNION ALL
SELECT at_ns, 5, 'oom', free_bytes, requested_bytes, 0, NULL, NULL, NULL, NULL, (SELECT frame_id FROM site WHERE id = oom.site_id) FROM oom
WHERE rank = :rank AND :device = :own_device ORDER BY at, place

-- name: snapshot_devices
SELECT max((SELECT coalesce(max(device), 0) FROM allocation WHERE rank = :rank), (
      SELECT coalesce(max(device), 0) FROM segment WHERE rank = :rank)) + 1

-- name: snapshot_annotations
-- A range that never ended has a start alone. Which ones: as in export_phases.
WITH shown AS (
  SELECT name, start_ns, end_ns FROM phase p WHERE rank = :rank AND NOT EXISTS (SELECT 1 FROM period q WHERE q.rank = p.rank
    AND q.kind = 'step' AND q.step = p.step AND q.same_as IS NOT NULL))
SELECT name, 1 AS starts, start_ns AS at FROM shown
UNION ALL
SELECT name, 0, end_ns FROM shown WHERE end_ns IS NOT NULL ORDER BY at, starts

-- name: advise_fact_kept_outputs
-- What the call that was refused something has made so far is in use, and no output yet. A tensor made outside of modules that
-- is several times as large as an output was put together from such: so is the refused one.
WITH RECURSIVE around(id, kind, start_ns, parent_id) AS (
  SELECT p.id, p.kind, p.start_ns, p.parent_id FROM oom o JOIN phase p ON p.id = o.phase_id
  WHERE o.rank = :rank AND o.at_ns = :at
  UNION ALL
  SELECT p.id, p.kind, p.start_ns, p.parent_id FROM around JOIN phase p ON p.id = around.parent_id),
program AS MATERIALIZED (
  SELECT a.module_id, a.bytes, a.requested_bytes, a.detail, a.decided_by, a.alloc_ns, a.free_ns FROM allocation a
  JOIN rank r ON r.rank = a.rank AND r.device = a.device WHERE a.rank = :rank AND a.category = 'program' AND a.alloc_ns < coalesce(
    (SELECT min(start_ns) FROM around WHERE kind IN ('forward', 'eval')), :at)),
sizes AS MATERIALIZED (SELECT DISTINCT requested_bytes AS bytes FROM program WHERE detail = 'output' AND requested_bytes >= 1 << 20),
kept AS (
  SELECT module_id, sum(bytes) AS bytes, count(*) AS tensors FROM program p
  WHERE (free_ns IS NULL OR free_ns > :at) AND (detail = 'output' OR (decided_by = 'program_kept' AND module_id IS NULL
    AND EXISTS (SELECT 1 FROM sizes s WHERE p.requested_bytes > s.bytes AND p.requested_bytes % s.bytes = 0)))
  GROUP BY module_id)
SELECT sum(bytes) OVER (), sum(tensors) OVER (), coalesce((SELECT name FROM module_name n WHERE n.id = module_id), ''),
  sum(bytes) OVER () + coalesce((SELECT o.requested_bytes FROM main.oom o WHERE o.rank = :rank AND o.at_ns = :at AND o.module_id IS NULL
    AND EXISTS (SELECT 1 FROM sizes s WHERE o.requested_bytes > s.bytes AND o.requested_bytes % s.bytes = 0)), 0)
FROM kept ORDER BY module_id IS NULL, bytes DESC LIMIT 1

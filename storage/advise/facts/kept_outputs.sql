-- What the call that was refused something has made so far is in use, and no output yet.
WITH RECURSIVE around(id, kind, start_ns, parent_id) AS (
  SELECT p.id, p.kind, p.start_ns, p.parent_id FROM oom o JOIN phase p ON p.id = o.phase_id
  WHERE o.rank = :rank AND o.at_ns = :at
  UNION ALL
  SELECT p.id, p.kind, p.start_ns, p.parent_id FROM around JOIN phase p ON p.id = around.parent_id),
kept AS (
  SELECT a.module_id, sum(a.bytes) AS bytes, count(*) AS tensors FROM allocation a JOIN rank r ON r.rank = a.rank AND r.device = a.device
  WHERE a.rank = :rank AND a.category = 'program' AND a.detail = 'output' AND (a.free_ns IS NULL OR a.free_ns > :at)
    AND a.alloc_ns < coalesce((SELECT min(start_ns) FROM around WHERE kind IN ('forward', 'eval')), :at) GROUP BY a.module_id)
SELECT sum(bytes) OVER (), sum(tensors) OVER (), coalesce((SELECT name FROM module_name n WHERE n.id = module_id), '') FROM kept
ORDER BY bytes DESC LIMIT 1

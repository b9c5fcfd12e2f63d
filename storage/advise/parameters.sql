-- name: advise_parameters
-- What an optimizer's first step is about: each parameter in the order in which models list them, whether its gradient is
-- there at an instant, and which states it has by then.
WITH kept AS MATERIALIZED (
  SELECT a.id, a.category, a.name, a.module_id, a.requested_bytes FROM allocation a JOIN rank r ON r.rank = a.rank AND r.device = a.device
  WHERE a.rank = :rank AND a.alloc_ns <= :at AND (a.free_ns IS NULL OR a.free_ns > :at) AND a.name IS NOT NULL
    AND a.category IN ('param', 'sharded_param', 'gradient', 'sharded_grad', 'optstate'))
SELECT p.id, p.requested_bytes,
  EXISTS (SELECT 1 FROM kept g WHERE g.category IN ('gradient', 'sharded_grad') AND g.name = p.name),
  coalesce((SELECT s.id FROM kept s WHERE s.category = 'optstate' AND s.name = p.name || '.exp_avg'), 0),
  coalesce((SELECT s.id FROM kept s WHERE s.category = 'optstate' AND s.name = p.name || '.exp_avg_sq'), 0),
  coalesce((SELECT s.id FROM kept s WHERE s.category = 'optstate' AND s.name = p.name || '.step'), 0)
FROM kept p WHERE p.category IN ('param', 'sharded_param') ORDER BY p.module_id, p.id

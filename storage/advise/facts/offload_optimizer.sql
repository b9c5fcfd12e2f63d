-- name: advise_fact_offload_optimizer
-- In Adam's first step what it makes for each parameter that has a gradient: two states, and with foreach one temporary.
WITH RECURSIVE around(id) AS (
  SELECT phase_id FROM oom WHERE rank = :rank AND at_ns = :at
  UNION ALL
  SELECT p.parent_id FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL),
stepping AS MATERIALIZED (SELECT p.name FROM around JOIN phase p ON p.id = around.id WHERE p.kind = 'optimizer_step'),
kept AS MATERIALIZED (
  SELECT a.category, a.name, a.bytes FROM allocation a JOIN rank r ON r.rank = a.rank AND r.device = a.device
  WHERE EXISTS (SELECT 1 FROM stepping WHERE name LIKE 'Adam%') AND a.rank = :rank AND a.alloc_ns <= :at
    AND (a.free_ns IS NULL OR a.free_ns > :at) AND a.name IS NOT NULL AND a.category IN ('param', 'sharded_param', 'gradient', 'sharded_grad'))
SELECT sum(bytes), sum(allocations), '', sum(bytes) FROM held WHERE category = 'optstate' AND NOT EXISTS (SELECT 1 FROM stepping)
UNION ALL
SELECT 2 * sum(p.bytes), 2 * count(*), '', 3 * sum(p.bytes) FROM kept p
WHERE p.category IN ('param', 'sharded_param') AND EXISTS (
  SELECT 1 FROM kept g WHERE g.category IN ('gradient', 'sharded_grad') AND g.name = p.name)
ORDER BY 1 DESC NULLS LAST LIMIT 1

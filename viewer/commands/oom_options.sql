-- Each statement estimates bytes that would not have been there, how many things it is about, and a name: from what was
-- alive (live, of oom.sql); none knows what the change would add elsewhere.

-- name: oom_option_reshard
SELECT sum(bytes) - 2 * max(bytes), count(*), '' FROM (SELECT sum(bytes) AS bytes FROM live
  WHERE category = 'unsharded_param' AND module_id IS NOT NULL GROUP BY module_id) HAVING count(*) > 3

-- name: oom_option_recompute
SELECT sum(bytes) - max(bytes), count(*), class FROM (
  SELECT m.class, sum(bytes) AS bytes FROM live l JOIN module m ON m.id = l.module_id
  WHERE category = 'activation' AND m.parent_id IS NOT NULL GROUP BY m.id)
GROUP BY class HAVING count(*) > 1 ORDER BY sum(bytes) DESC LIMIT 1

-- name: oom_option_batch
SELECT sum(bytes) / 2, 1, '' FROM live WHERE category IN ('activation', 'input')

-- name: oom_option_expandable_segments
SELECT reserved_bytes - active_bytes, 1, '' FROM oom JOIN rank USING (rank)
WHERE rank = :rank AND at_ns = :at AND coalesce(allocator_config, '') NOT LIKE '%expandable_segments:True%'

-- name: oom_option_optimizer_temporaries
SELECT sum(bytes) - max(bytes / allocations), sum(allocations), '' FROM live
WHERE category = 'temp' AND detail = 'optimizer'

-- name: oom_option_optimizer_in_backward
SELECT sum(bytes) - max(bytes), sum(allocations), '' FROM live WHERE category IN ('sharded_grad', 'gradient')
  AND EXISTS (SELECT 1 FROM oom o WHERE o.rank = :rank AND o.at_ns = :at AND EXISTS (
    WITH RECURSIVE around(id, depth) AS (
      SELECT o.phase_id, 0
      UNION ALL
      SELECT p.parent_id, depth + 1 FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
    SELECT 1 FROM around JOIN phase p ON p.id = around.id WHERE p.kind IN ('optimizer_step', 'backward')))

-- name: oom_option_leak
-- All that has grown, of an earlier request its part by the steps that had ended.
SELECT bytes * steps / (to_step - from_step), steps, '' FROM (
  SELECT g.*, (SELECT max(s.step) FROM step s WHERE s.rank = g.rank AND s.end_ns <= coalesce(:at, s.end_ns)
    AND s.step <= g.to_step) - g.from_step AS steps FROM rank_growth g WHERE g.rank = :rank)
WHERE steps > 0

-- name: oom_option_other_processes
-- A limit of this process is reached whatever the others hold.
SELECT sum(bytes), 1, '' FROM device_owner
WHERE rank = :rank AND at_ns = :at AND owner = 'other_processes' AND NOT EXISTS (
    SELECT 1 FROM request o WHERE o.rank = :rank AND o.at_ns = :at AND o.free_bytes >= o.wanted_bytes)

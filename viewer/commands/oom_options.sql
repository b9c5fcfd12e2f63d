-- Each statement estimates bytes that would not have been there, how many things it is about, and a name: from what was
-- alive (live, of oom.sql); none knows what the change would add elsewhere. What its categories may be wrong about is left
-- out: an option rests on what a tag or a whole range has decided.

-- name: oom_option_reshard
SELECT sum(bytes) - 2 * max(bytes), count(*), '' FROM (SELECT sum(bytes) AS bytes FROM live
  WHERE category = 'unsharded_param' AND module_id IS NOT NULL GROUP BY module_id) HAVING count(*) > 3

-- name: oom_option_gradient_sync
-- Reduced in every backward, of the gradients this rank's part would stay, and in a backward two units' would be whole at a time.
WITH whole AS (SELECT sum(bytes) AS bytes FROM live WHERE category = 'unsharded_grad' AND module_id IS NOT NULL GROUP BY module_id),
ranks AS (SELECT max(1, coalesce(world_size, 1)) AS count FROM rank WHERE rank = :rank)
SELECT sum(bytes) - sum(bytes) / (SELECT count FROM ranks) - 2 * max(bytes) * EXISTS (
    SELECT 1 FROM phase p INDEXED BY phase_by_time WHERE p.rank = :rank AND p.kind = 'backward' AND p.start_ns <= :at
      AND (p.end_ns IS NULL OR p.end_ns > :at)),
  count(*), '' FROM whole HAVING count(*) > 3

-- name: oom_option_recompute
SELECT sum(bytes) - max(bytes), count(*), class FROM (
  SELECT m.class, sum(bytes) AS bytes FROM live l JOIN module m ON m.id = l.module_id
  WHERE category = 'activation' AND m.parent_id IS NOT NULL GROUP BY m.id)
GROUP BY class HAVING count(*) > 1 ORDER BY sum(bytes) DESC LIMIT 1

-- name: oom_option_loss
-- Between the end of the model's last forward and the first backward of a module the loss runs, outside of modules. What is
-- made there and as large as what that forward returned last, or up to four times (wider numbers), is of the loss: asked for
-- only where the refused request is one of these.
WITH asked AS (SELECT * FROM main.oom WHERE rank = :rank AND at_ns = :at AND source = 'allocator' AND module_id IS NULL
  AND step IS NOT NULL),
call AS (
  SELECT p.start_ns, p.end_ns, a.requested_bytes AS asked_bytes FROM asked a CROSS JOIN phase p INDEXED BY phase_by_time
    ON p.rank = a.rank AND p.start_ns < a.at_ns
  JOIN module m ON m.id = p.module_id WHERE p.kind = 'forward' AND m.parent_id IS NULL AND p.step = a.step AND p.end_ns <= a.at_ns
  ORDER BY p.start_ns DESC LIMIT 1),
output AS (
  SELECT call.*, a.requested_bytes AS bytes FROM call CROSS JOIN allocation a INDEXED BY allocation_by_time
    ON a.rank = :rank AND a.alloc_ns >= call.start_ns AND a.alloc_ns < call.end_ns
  JOIN rank r ON r.rank = a.rank AND r.device = a.device WHERE a.category = 'activation' AND (a.free_ns IS NULL OR a.free_ns > call.end_ns)
  ORDER BY a.alloc_ns DESC, a.id DESC LIMIT 1),
loss AS (
  SELECT a.bytes FROM output o CROSS JOIN allocation a INDEXED BY allocation_by_time
    ON a.rank = :rank AND a.alloc_ns >= o.end_ns AND a.alloc_ns < :at
  JOIN rank r ON r.rank = a.rank AND r.device = a.device
  WHERE (a.free_ns IS NULL OR a.free_ns > :at) AND a.module_id IS NULL AND a.requested_bytes BETWEEN o.bytes AND 4 * o.bytes
    AND a.decided_by IN ('step_activation', 'step_temp', 'backward_temp', 'backward_in_flight')
  UNION ALL
  SELECT asked_bytes FROM output WHERE asked_bytes BETWEEN bytes AND 4 * bytes)
SELECT sum(bytes) * 7 / 8, count(*), '' FROM loss WHERE EXISTS (
  SELECT 1 FROM output WHERE asked_bytes BETWEEN bytes AND 4 * bytes AND NOT EXISTS (
    SELECT 1 FROM phase p INDEXED BY phase_by_time WHERE p.rank = :rank AND p.start_ns >= output.end_ns AND p.start_ns < :at
      AND p.module_id IS NOT NULL AND p.kind IN ('backward', 'forward', 'recompute')))

-- name: oom_option_kept_outputs
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

-- name: oom_option_batch
SELECT sum(bytes) / 2, 1, '' FROM live WHERE category IN ('activation', 'input')

-- name: oom_option_expandable_segments
SELECT reserved_bytes - active_bytes, 1, '' FROM oom JOIN rank USING (rank)
WHERE rank = :rank AND at_ns = :at AND coalesce(allocator_config, '') NOT LIKE '%expandable_segments:True%'

-- name: oom_option_optimizer_temporaries
-- In a first step that is not over, only tags tell them from the state that it makes.
SELECT sum(bytes) - max(bytes / allocations), sum(allocations), '' FROM live
WHERE category = 'temp' AND detail = 'optimizer' AND (EXISTS (SELECT 1 FROM live WHERE category = 'optstate')
  OR EXISTS (SELECT 1 FROM phase WHERE rank = :rank AND kind = 'optimizer_step' AND step < (
    SELECT step FROM oom WHERE rank = :rank AND at_ns = :at)))

-- name: oom_option_optimizer_in_backward
-- Without what is in flight, which may be no gradient, and without what waits for more, whose step can't come yet.
SELECT sum(bytes) - max(bytes), sum(allocations), '' FROM live WHERE category IN ('sharded_grad', 'gradient')
  AND detail IS NULL AND EXISTS (SELECT 1 FROM oom o WHERE o.rank = :rank AND o.at_ns = :at AND EXISTS (
    WITH RECURSIVE around(id, depth) AS (
      SELECT o.phase_id, 0
      UNION ALL
      SELECT p.parent_id, depth + 1 FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
    SELECT 1 FROM around JOIN phase p ON p.id = around.id WHERE p.kind IN ('optimizer_step', 'backward')))

-- name: oom_option_leak
-- All that has grown, of an earlier request its part by the steps that had ended; and of the steps before, which growth is
-- not measured in, what the same owners still hold, but no more than they add in as many steps.
WITH span AS (
  SELECT g.*, (SELECT max(s.step) FROM step s WHERE s.rank = g.rank AND s.end_ns <= coalesce(:at, s.end_ns)
    AND s.step <= g.to_step) - g.from_step AS steps,
    (SELECT count(*) FROM step s WHERE s.rank = g.rank AND s.step <= g.from_step) AS early_steps,
    (SELECT min(s.period) FROM step s WHERE s.rank = g.rank) AS first_period,
    (SELECT s.period FROM step s WHERE s.rank = g.rank AND s.step = g.from_step) AS from_period
  FROM rank_growth g WHERE g.rank = :rank),
early AS (
  SELECT coalesce(sum(min(held, CAST(per_step_bytes * early_steps AS INTEGER))), 0) AS bytes FROM (
    SELECT o.per_step_bytes, s.early_steps, (
      SELECT coalesce(sum(a.bytes), 0) FROM allocation a WHERE a.rank = :rank AND a.last_step >= o.to_step
        AND a.period BETWEEN s.first_period AND s.from_period AND a.category = o.category AND a.detail IS o.detail
        AND a.module_id IS o.module_id AND (:at IS NULL OR a.free_ns IS NULL OR a.free_ns > :at)) AS held
    FROM span s JOIN owner_growth o ON o.rank = s.rank AND o.grows))
SELECT s.bytes * s.steps / (s.to_step - s.from_step) + e.bytes, s.steps + iif(e.bytes > 0, s.early_steps, 0), ''
FROM span s, early e WHERE s.steps > 0

-- name: oom_option_other_processes
-- A limit of this process is reached whatever the others hold.
SELECT sum(bytes), 1, '' FROM device_owner
WHERE rank = :rank AND at_ns = :at AND owner = 'other_processes' AND NOT EXISTS (
    SELECT 1 FROM request o WHERE o.rank = :rank AND o.at_ns = :at AND o.free_bytes >= o.wanted_bytes)

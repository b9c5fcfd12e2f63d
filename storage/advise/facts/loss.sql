-- name: advise_fact_loss
-- Between the end of the model's last forward and the first backward of a module the loss runs, outside of modules. What is
-- made there and as large as what that forward returned last, or up to four times (wider numbers), is of the loss: asked for
-- only where the refused request is one of these. What the model returned goes too, where the chunks hold what makes it.
WITH asked AS (SELECT * FROM main.oom WHERE rank = :rank AND at_ns = :at AND source = 'allocator' AND module_id IS NULL
  AND step IS NOT NULL),
call AS (
  SELECT p.start_ns, p.end_ns, a.requested_bytes AS asked_bytes FROM asked a CROSS JOIN phase p
    ON p.rank = a.rank AND p.start_ns < a.at_ns
  JOIN module m ON m.id = p.module_id WHERE p.kind = 'forward' AND m.parent_id IS NULL AND p.step = a.step AND p.end_ns <= a.at_ns
  ORDER BY p.start_ns DESC LIMIT 1),
output AS (
  SELECT call.*, a.requested_bytes AS bytes FROM call CROSS JOIN allocation a
    ON a.rank = :rank AND a.alloc_ns >= call.start_ns AND a.alloc_ns < call.end_ns
  JOIN rank r ON r.rank = a.rank AND r.device = a.device WHERE a.category = 'activation' AND (a.free_ns IS NULL OR a.free_ns > call.end_ns)
  ORDER BY a.alloc_ns DESC, a.id DESC LIMIT 1),
loss AS (
  SELECT a.bytes FROM output o CROSS JOIN allocation a
    ON a.rank = :rank AND a.alloc_ns >= o.end_ns AND a.alloc_ns < :at
  JOIN rank r ON r.rank = a.rank AND r.device = a.device
  WHERE (a.free_ns IS NULL OR a.free_ns > :at) AND a.module_id IS NULL AND a.requested_bytes BETWEEN o.bytes AND 4 * o.bytes
    AND a.decided_by IN ('step_activation', 'step_temp', 'backward_temp', 'backward_in_flight')
  UNION ALL
  SELECT asked_bytes FROM output WHERE asked_bytes BETWEEN bytes AND 4 * bytes)
SELECT sum(bytes) * 7 / 8, count(*), '', (sum(bytes) + (SELECT o.bytes FROM output o)) * 7 / 8 FROM loss WHERE EXISTS (
  SELECT 1 FROM output WHERE asked_bytes BETWEEN bytes AND 4 * bytes AND NOT EXISTS (
    SELECT 1 FROM phase p WHERE p.rank = :rank AND p.start_ns >= output.end_ns AND p.start_ns < :at
      AND p.module_id IS NOT NULL AND p.kind IN ('backward', 'forward', 'recompute')))

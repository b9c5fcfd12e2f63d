-- name: advise_fact_optimizer_in_backward
-- At most as much again: a temporary of the optimizer for each.
-- Without what is in flight, which may be no gradient, and without what waits for more, whose step can't come yet.
SELECT sum(bytes) - max(bytes), sum(allocations), '', 2 * sum(bytes) FROM held WHERE category IN ('sharded_grad', 'gradient')
  AND detail IS NULL AND EXISTS (SELECT 1 FROM oom o WHERE o.rank = :rank AND o.at_ns = :at AND EXISTS (
    WITH RECURSIVE around(id, depth) AS (
      SELECT o.phase_id, 0
      UNION ALL
      SELECT p.parent_id, depth + 1 FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
    SELECT 1 FROM around JOIN phase p ON p.id = around.id WHERE p.kind IN ('optimizer_step', 'backward')))

-- name: advise_fact_gradient_sync
-- Reduced in every backward, of the gradients this rank's part would stay, and in a backward two units' would be whole at a time.
WITH whole AS (SELECT sum(bytes) AS bytes FROM held WHERE category = 'unsharded_grad' AND module_id IS NOT NULL GROUP BY module_id),
ranks AS (SELECT max(1, coalesce(world_size, 1)) AS count FROM rank WHERE rank = :rank)
SELECT sum(bytes) - sum(bytes) / (SELECT count FROM ranks) - 2 * max(bytes) * EXISTS (
    SELECT 1 FROM phase p WHERE p.rank = :rank AND p.kind = 'backward' AND p.start_ns <= :at
      AND (p.end_ns IS NULL OR p.end_ns > :at)),
  count(*), '' FROM whole HAVING count(*) > 3

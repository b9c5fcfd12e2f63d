-- name: advise_fact_batch
-- At most half of temporaries and of the refused request too, where these may grow with the batch: not of an optimizer's step.
SELECT sum(bytes) FILTER (WHERE category <> 'temp') / 2, 1, '', sum(bytes) / 2 + coalesce((
  SELECT o.requested_bytes / 2 FROM main.oom o WHERE o.rank = :rank AND o.at_ns = :at AND o.step IS NOT NULL AND NOT EXISTS (
    WITH RECURSIVE around(id) AS (
      SELECT o.phase_id
      UNION ALL
      SELECT p.parent_id FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
    SELECT 1 FROM around JOIN phase p ON p.id = around.id WHERE p.kind = 'optimizer_step')), 0)
FROM held WHERE category IN ('activation', 'input') OR (category = 'temp' AND detail IS NOT 'optimizer')

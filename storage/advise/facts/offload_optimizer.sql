-- Not in its first step, which makes the states where it runs.
SELECT sum(bytes), sum(allocations), '' FROM held WHERE category = 'optstate' AND NOT EXISTS (
  SELECT 1 FROM oom o WHERE o.rank = :rank AND o.at_ns = :at AND EXISTS (
    WITH RECURSIVE around(id) AS (
      SELECT o.phase_id
      UNION ALL
      SELECT p.parent_id FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
    SELECT 1 FROM around JOIN phase p ON p.id = around.id WHERE p.kind = 'optimizer_step'))

-- name: advise_fact_optimizer_temporaries
-- In a first step that is not over, only tags tell them from the state that it makes.
SELECT sum(bytes) - max(bytes / allocations), sum(allocations), '' FROM held
WHERE category = 'temp' AND detail = 'optimizer' AND (EXISTS (SELECT 1 FROM held WHERE category = 'optstate')
  OR EXISTS (SELECT 1 FROM phase WHERE rank = :rank AND kind = 'optimizer_step' AND step < (
    SELECT step FROM oom WHERE rank = :rank AND at_ns = :at)))

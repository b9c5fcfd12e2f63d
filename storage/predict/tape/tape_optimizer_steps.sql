-- A rank's steps of optimizers that are stored, by time.
SELECT id, coalesce(step, -1), start_ns, coalesce(end_ns, start_ns) FROM phase
WHERE rank = :rank AND kind = 'optimizer_step' ORDER BY start_ns

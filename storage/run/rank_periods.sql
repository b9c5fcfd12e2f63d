-- The periods by which ranks are compared, rank by rank in the order of time: of :rank, or of all where it is NULL. What the
-- end of a log cut off is not here: the step that did not reach its end, and the last stretch of a process that was killed.
SELECT p.rank, p.period, p.kind, p.step, p.peak_allocated_bytes, p.end_allocated_bytes
FROM rank r CROSS JOIN life l ON l.rank = r.rank CROSS JOIN period p ON p.rank = r.rank
WHERE (:rank IS NULL OR r.rank = :rank) AND p.peak_allocated_bytes IS NOT NULL
  AND (coalesce(r.clean_exit, 1) OR p.period < l.periods - 1)
  AND NOT (p.kind = 'step' AND p.period = l.periods - 1 AND EXISTS (SELECT 1 FROM phase f
    WHERE f.rank = p.rank AND f.step = p.step AND f.kind = 'step' AND f.end_ns IS NULL))
ORDER BY r.rank, p.period

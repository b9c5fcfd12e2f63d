-- The periods by which ranks are compared, rank by rank in the order of time: of :rank, or of all where it is NULL. is_cut: the
-- end of the log cut it off, so that it may not have reached its peak. What follows the last step of a process that was
-- killed is not here: nobody knows whether it was its end.
SELECT p.rank, p.period, p.kind, p.step, p.peak_allocated_bytes, p.end_allocated_bytes,
  p.period = l.periods - 1 AND (NOT coalesce(r.clean_exit, 1) OR p.kind = 'step' AND EXISTS (SELECT 1 FROM phase f
    WHERE f.rank = p.rank AND f.step = p.step AND f.kind = 'step' AND f.end_ns IS NULL)) AS is_cut
FROM rank r CROSS JOIN life l ON l.rank = r.rank CROSS JOIN period p ON p.rank = r.rank
WHERE (:rank IS NULL OR r.rank = :rank) AND p.peak_allocated_bytes IS NOT NULL
  AND NOT (p.kind = 'end' AND NOT coalesce(r.clean_exit, 1))
ORDER BY r.rank, p.period

-- name: advise_goal_peak
-- The period of a rank's highest peak, its bytes, whether the rank has a step at all, and how its record ends.
SELECT coalesce(l.peak_period, -1), coalesce(l.peak_allocated_bytes, 0), EXISTS (SELECT 1 FROM step s WHERE s.rank = :rank),
  coalesce(r.clean_exit, 0), coalesce(p.step, -1), coalesce(r.allocator_config, '')
FROM rank r LEFT JOIN life l ON l.rank = r.rank LEFT JOIN period p ON p.rank = r.rank AND p.period = l.peak_period
WHERE r.rank = :rank

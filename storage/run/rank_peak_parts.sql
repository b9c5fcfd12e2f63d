-- What each rank has at its highest step, or at its highest period where it has no steps, by category.
SELECT l.rank, p.period, dense_rank() OVER (ORDER BY f.kind, m.label), dense_rank() OVER (ORDER BY c.category), c.bytes
FROM life l CROSS JOIN period p ON p.rank = l.rank AND p.period = coalesce(l.highest_step_period, l.peak_period)
CROSS JOIN peak_category c ON c.rank = p.rank AND c.period = coalesce(p.same_as, p.period) AND c.module_id IS NULL
  AND c.phase = p.kind
LEFT JOIN phase f ON f.id = p.peak_phase_id LEFT JOIN module_name m ON m.id = p.peak_module_id
ORDER BY l.rank, c.category

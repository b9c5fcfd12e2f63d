-- When in its steps a rank cleared gradients and ran backward.
SELECT step, kind = 'backward', start_ns, coalesce(end_ns, start_ns) FROM phase
WHERE rank = :rank AND step IS NOT NULL AND (kind = 'zero_grad' OR (kind = 'backward' AND module_id IS NULL)) ORDER BY start_ns

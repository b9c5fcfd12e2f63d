-- name: advise_price_forward
-- In the last whole step before :step (NULL: the last one) that has rows: the host's time in the forward of a class's modules, in the step, and which.
SELECT sum(p.end_ns - p.start_ns), s.end_ns - s.start_ns, s.step FROM step s JOIN phase p ON p.rank = s.rank AND p.step = s.step AND p.kind = 'forward'
JOIN module m ON m.id = p.module_id AND m.class = :name
WHERE s.rank = :rank AND (:step IS NULL OR s.step < :step) AND p.end_ns IS NOT NULL GROUP BY s.step ORDER BY s.step DESC LIMIT 1

-- The owner of memory that makes most of what :rank has more (:sign 1) or less (-1) at the peak of :period than :base at that
-- of :base_period.
WITH parts AS (
  SELECT o.category, o.detail, m.label AS module, o.phase, o.bytes FROM period p
  CROSS JOIN peak_owner o ON o.rank = p.rank AND o.period = coalesce(p.same_as, p.period)
  LEFT JOIN module_name m ON m.id = o.module_id WHERE p.rank = :rank AND p.period = :period
  UNION ALL
  SELECT o.category, o.detail, m.label, o.phase, -o.bytes FROM period p
  CROSS JOIN peak_owner o ON o.rank = p.rank AND o.period = coalesce(p.same_as, p.period)
  LEFT JOIN module_name m ON m.id = o.module_id WHERE p.rank = :base AND p.period = :base_period)
SELECT category, detail, module, phase, sum(bytes) AS more FROM parts GROUP BY category, detail, module, phase
HAVING more * :sign > 0 ORDER BY more * :sign DESC, category, detail, module, phase LIMIT 1

-- name: advise_fact_recompute
SELECT sum(bytes) - max(bytes), count(*), class, sum(bytes) FROM (
  SELECT m.class, sum(bytes) AS bytes FROM held l JOIN module m ON m.id = l.module_id
  WHERE category = 'activation' AND m.parent_id IS NOT NULL GROUP BY m.id)
GROUP BY class HAVING count(*) > 1 ORDER BY sum(bytes) DESC LIMIT 1

-- name: advise_fact_reshard
SELECT sum(bytes) - 2 * max(bytes), count(*), '' FROM (SELECT sum(bytes) AS bytes FROM held
  WHERE category = 'unsharded_param' AND module_id IS NOT NULL GROUP BY module_id) HAVING count(*) > 3

-- name: advise_fact_leak
-- All that has grown, of an earlier request its part by the steps that had ended; and of the steps before, which growth is
-- not measured in, what the same owners still hold, but no more than they add in as many steps.
WITH span AS (
  SELECT g.*, (SELECT max(s.step) FROM step s WHERE s.rank = g.rank AND s.end_ns <= coalesce(:at, s.end_ns)
    AND s.step <= g.to_step) - g.from_step AS steps,
    (SELECT count(*) FROM step s WHERE s.rank = g.rank AND s.step <= g.from_step) AS early_steps,
    (SELECT min(s.period) FROM step s WHERE s.rank = g.rank) AS first_period,
    (SELECT s.period FROM step s WHERE s.rank = g.rank AND s.step = g.from_step) AS from_period
  FROM rank_growth g WHERE g.rank = :rank),
early AS (
  SELECT coalesce(sum(min(held, CAST(per_step_bytes * early_steps AS INTEGER))), 0) AS bytes FROM (
    SELECT o.per_step_bytes, s.early_steps, (
      SELECT coalesce(sum(a.bytes), 0) FROM allocation a WHERE a.rank = :rank AND a.last_step >= o.to_step
        AND a.period BETWEEN s.first_period AND s.from_period AND a.category = o.category AND a.detail IS o.detail
        AND a.module_id IS o.module_id AND (:at IS NULL OR a.free_ns IS NULL OR a.free_ns > :at)) AS held
    FROM span s JOIN owner_growth o ON o.rank = s.rank AND o.grows))
SELECT s.bytes * s.steps / (s.to_step - s.from_step) + e.bytes, s.steps + iif(e.bytes > 0, s.early_steps, 0), '', NULL,
  CAST(s.per_step_bytes AS INTEGER)
FROM span s, early e WHERE s.steps > 0

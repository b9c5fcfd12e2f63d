-- The highest points: of a life, a period, a module; where they lie and which are shown.

-- name: views

-- The step to show of each rank: WHERE asked IS 3 has step 3, WHERE asked IS NULL the one with the highest peak. rows_step is
-- the step whose rows speak for it: itself, or the one that it repeats. Steps without a peak are not here.
CREATE VIEW shown_step AS
SELECT NULL AS asked, s.*, coalesce(s.same_as, s.step) AS rows_step FROM rank k CROSS JOIN step s ON s.rank = k.rank
  AND s.step = (SELECT h.step FROM step h WHERE h.rank = k.rank AND h.peak_allocated_bytes IS NOT NULL
    ORDER BY h.peak_allocated_bytes DESC, h.step LIMIT 1)
UNION ALL
SELECT s.step, s.*, coalesce(s.same_as, s.step) FROM rank k CROSS JOIN step s ON s.rank = k.rank
WHERE s.peak_allocated_bytes IS NOT NULL;

-- Where each period has its peak: at is "forward of layers.3" or "optimizer step"; at_data the same with the FQN of a root;
-- whereabouts has the period too where that is none of the steps. rows_of is the period whose rows speak for it; those of all of
-- it have its kind as their phase. Periods without a peak are not here.
CREATE VIEW period_peak AS
SELECT c.*, coalesce(c.phase || coalesce(' of ' || c.label, ''), 'outside any phase') AS at,
  coalesce(c.phase || coalesce(' of ' || c.fqn, ''), 'outside any phase') AS at_data,
  iif(c.step IS NULL, c.place || iif(c.phase IS NULL OR c.phase IS c.name, '', ', ' || c.phase || coalesce(' of ' || c.label, '')),
    coalesce(c.phase || coalesce(' of ' || c.label, ''), 'outside any phase')) AS whereabouts
FROM (SELECT q.rank, q.period, q.kind, w.step, q.name, w.place, w.rows_of,
    q.peak_ns, q.peak_allocated_bytes, q.peak_active_bytes, q.peak_reserved_bytes, q.peak_requested_bytes, q.peak_device_bytes,
    CASE p.kind WHEN 'user' THEN p.name ELSE replace(p.kind, '_', ' ') END AS phase, n.label, n.fqn
  FROM period q JOIN period_place w ON w.rank = q.rank AND w.period = q.period
  LEFT JOIN phase p ON p.id = q.peak_phase_id LEFT JOIN module_name n ON n.id = q.peak_module_id) c
WHERE c.peak_allocated_bytes IS NOT NULL;

-- The period to show of each rank: WHERE asked_step IS 3 AND asked_period IS NULL has step 3, IS NULL twice the highest of its life.
CREATE VIEW shown_period AS
SELECT NULL AS asked_step, NULL AS asked_period, c.* FROM life l CROSS JOIN period_peak c
  ON c.rank = l.rank AND c.period = l.peak_period
UNION ALL
SELECT s.step, NULL, c.* FROM rank k CROSS JOIN step s ON s.rank = k.rank CROSS JOIN period_peak c
  ON c.rank = s.rank AND c.period = s.period
UNION ALL
SELECT NULL, c.period, c.* FROM rank k CROSS JOIN period_peak c ON c.rank = k.rank;

-- The same of the steps alone.
CREATE VIEW peak_place AS
SELECT s.rank, s.step, c.at AS place, c.at_data AS data FROM step s CROSS JOIN period_peak c
  ON c.rank = s.rank AND c.period = s.period;

-- Per module and phase: the device's highest point, the most that the module itself owned, and what was allocated then.
-- fqn is empty for a root; module_id NULL stands for the whole phase, or for the whole period where phase is its kind. step is
-- NULL outside of steps; place is the period in words. other_bytes has also what was tagged in words of your own.
CREATE VIEW module_peaks AS
SELECT s.rank, s.step, s.period, s.place, p.module_id, coalesce(m.fqn, '') AS fqn, m.class, m.depth, p.phase, p.at_ns, p.allocated_bytes,
  p.own_bytes, p.own_with_children_bytes,
  -- CATEGORIES
  coalesce(sum(c.bytes) FILTER (WHERE c.category = 'other' OR c.category NOT IN (SELECT name FROM category)), 0)
    AS other_bytes
FROM period_place s
JOIN peak p ON p.rank = s.rank AND p.period = s.rows_of
LEFT JOIN module m ON m.id = p.module_id
LEFT JOIN peak_category c
  ON c.rank = p.rank AND c.period = p.period AND c.module_id IS p.module_id AND c.phase = p.phase
GROUP BY s.rank, s.period, p.module_id, p.phase;

-- What was allocated at each period's highest point, by category. step is NULL outside of steps.
CREATE VIEW category_at_peak AS
SELECT s.rank, s.step, s.period, s.place, c.category, c.bytes FROM period_place s
JOIN peak_category c ON c.rank = s.rank AND c.period = s.rows_of AND c.module_id IS NULL AND c.phase = s.kind;

-- The highest point of each rank's life: in which period, where in it, and how much of it has no owner; beside it the highest step.
CREATE VIEW life_peak AS
SELECT l.rank, p.period, p.kind, p.place, p.step, q.peak_ns AS at_ns, coalesce(f.kind, '') AS phase,
  coalesce(f.name, '') AS range, coalesce(m.name, '') AS module,
  l.peak_allocated_bytes, l.peak_requested_bytes, l.peak_active_bytes, l.peak_reserved_bytes, l.peak_device_bytes,
  coalesce((SELECT sum(bytes) FROM category_at_peak c WHERE c.rank = l.rank AND c.period = p.period
    AND c.category = 'unattributed'), 0) AS unattributed_bytes,
  t.step AS highest_step, t.peak_allocated_bytes AS highest_step_bytes
FROM life l
LEFT JOIN period_place p ON p.rank = l.rank AND p.period = l.peak_period
LEFT JOIN period q ON q.rank = l.rank AND q.period = l.peak_period
LEFT JOIN phase f ON f.id = q.peak_phase_id
LEFT JOIN module_name m ON m.id = q.peak_module_id
LEFT JOIN period t ON t.rank = l.rank AND t.period = l.highest_step_period;

-- One row a step: where its highest point was and how much of it has no owner.
CREATE VIEW step_summary AS
SELECT s.rank, s.step, s.peak_allocated_bytes, s.peak_active_bytes, s.peak_reserved_bytes, s.peak_device_bytes,
  coalesce(p.kind, '') AS peak_phase, coalesce(m.name, '') AS peak_module, s.peak_ns - s.start_ns AS peak_after_ns,
  s.end_ns - s.start_ns AS duration_ns,
  coalesce((SELECT sum(bytes) FROM category_at_peak c WHERE c.rank = s.rank AND c.step = s.step
    AND c.category = 'unattributed'), 0) AS unattributed_bytes, s.checked
FROM step s
LEFT JOIN phase p ON p.id = s.peak_phase_id
LEFT JOIN module_name m ON m.id = s.peak_module_id;

-- What no rule covered at each period's highest point. step is NULL outside of steps.
CREATE VIEW unattributed AS
SELECT s.rank, s.step, s.period, coalesce(o.phase, 'outside') AS phase, sum(o.bytes) AS bytes, sum(o.allocations) AS allocations
FROM period_place s JOIN peak_owner o ON o.rank = s.rank AND o.period = s.rows_of
WHERE o.category = 'unattributed' GROUP BY s.rank, s.period, o.phase;

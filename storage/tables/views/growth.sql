-- What outlives its step, and what grows from step to step or from call to call.

-- name: views

-- What is allocated in one step and alive after the next one; kept_bytes of it are alive at the end of the last step.
-- phase is that of phase_named.
CREATE VIEW survivors AS
WITH made_in AS MATERIALIZED (
  SELECT n.id, n.kind FROM (SELECT DISTINCT phase_id AS id FROM allocation WHERE last_step > step) made
  JOIN phase_named n ON n.id = made.id)
SELECT g.rank, g.step, coalesce(m.name, '') AS module, g.phase, g.category, g.detail, g.decided_by, g.size_bytes, g.bytes,
  g.allocations, g.kept_bytes
FROM (SELECT a.rank, a.step, a.module_id, p.kind AS phase, a.category, a.detail, a.decided_by, a.bytes AS size_bytes,
    sum(a.bytes) AS bytes, count(*) AS allocations, sum(CASE WHEN a.last_step = l.step THEN a.bytes ELSE 0 END) AS kept_bytes
  FROM (SELECT rank, last_step AS step FROM rank_steps) l
  CROSS JOIN allocation a ON a.rank = l.rank
  LEFT JOIN made_in p ON p.id = a.phase_id
  WHERE a.last_step > a.step AND a.step >= 0 -- as all are; so SQLite takes the index of survivors
  GROUP BY a.rank, a.step, a.module_id, p.kind, a.category, a.detail, a.decided_by, a.bytes) g
LEFT JOIN module_name m ON m.id = g.module_id;

-- The steps of each rank that reached their end: a last one that was cut off is none. last: the number of the last of them.
CREATE VIEW whole_steps AS
SELECT k.rank, k.steps - k.cut AS steps, iif(k.cut, (SELECT max(p.step) FROM period p WHERE p.rank = k.rank
  AND p.kind = 'step' AND p.step < k.last_step), k.last_step) AS last
FROM (SELECT r.*, EXISTS (SELECT 1 FROM phase p WHERE p.rank = r.rank AND p.step = r.last_step AND p.kind = 'step'
  AND p.end_ns IS NULL) AS cut FROM rank_steps r) k;

-- What a rank holds more (or less) at the end of its last whole step than at the end of an early one, from_step: the third, or
-- an earlier one of fewer than six; fewer than four tell nothing. By owner: bytes made since and alive, less bytes that were
-- alive then and are gone; the sum over owners is the growth of the allocated bytes. allocations: of what was made since.
-- births: in how many periods that was, those of the last step and right before it left out; late_births: of these, in the
-- second half of the steps; gone_births: in how many what is gone was made. An owner grows when what it makes stays: births in
-- two periods or more, one of them late, and more than are gone, as of a queue whose batches vary. phase is that of phase_named.
-- per_step_bytes is its growth over the steps between.
CREATE VIEW owner_growth AS
WITH base AS (
  SELECT r.rank, r.last, CASE r.steps
    WHEN 4 THEN (SELECT p.step FROM period p WHERE p.rank = r.rank AND p.kind = 'step' ORDER BY p.step LIMIT 1)
    WHEN 5 THEN (SELECT p.step FROM period p WHERE p.rank = r.rank AND p.kind = 'step' ORDER BY p.step LIMIT 1 OFFSET 1)
    ELSE (SELECT p.step FROM period p WHERE p.rank = r.rank AND p.kind = 'step' ORDER BY p.step LIMIT 1 OFFSET 2)
    END AS early FROM whole_steps r WHERE r.steps >= 4),
spans AS MATERIALIZED (
  SELECT b.rank, b.early, b.last, e.period AS early_period, l.period AS last_period, (e.period + l.period) / 2 AS half
  FROM base b JOIN step e ON e.rank = b.rank AND e.step = b.early JOIN step l ON l.rank = b.rank AND l.step = b.last),
held AS MATERIALIZED (
  SELECT s.rank, s.early, s.last, s.half, s.last_period, a.category, a.detail, a.module_id, a.phase_id,
    coalesce(a.period, 0) AS period, a.bytes, a.last_step >= s.last AS made
  FROM spans s CROSS JOIN allocation a ON a.rank = s.rank AND a.last_step >= s.early
  JOIN rank r ON r.rank = s.rank AND a.device = r.device
  WHERE iif(a.last_step >= s.last, a.period > s.early_period AND a.period <= s.last_period,
    coalesce(a.period, 0) <= s.early_period)),
made_in AS MATERIALIZED (
  SELECT n.id, n.kind FROM (SELECT DISTINCT phase_id AS id FROM held) made JOIN phase_named n ON n.id = made.id),
owners AS (
  SELECT h.rank, h.early AS from_step, h.last AS to_step, h.category, h.detail, h.module_id, f.kind AS phase,
    sum(iif(made, h.bytes, -h.bytes)) AS bytes, sum(made) AS allocations,
    count(DISTINCT iif(made AND h.period < h.last_period - 1, h.period, NULL)) AS births,
    count(DISTINCT iif(made AND h.period < h.last_period - 1 AND h.period > h.half, h.period, NULL)) AS late_births,
    count(DISTINCT iif(made, NULL, h.period)) AS gone_births
  FROM held h LEFT JOIN made_in f ON f.id = h.phase_id
  GROUP BY h.rank, h.category, h.detail, h.module_id, f.kind)
SELECT o.rank, o.from_step, o.to_step, o.category, o.detail, o.module_id, coalesce(m.name, '') AS module, o.phase, o.bytes,
  o.bytes * 1.0 / (o.to_step - o.from_step) AS per_step_bytes, o.allocations, o.births, o.late_births, o.gone_births,
  o.bytes > 0 AND o.births >= 2 AND o.late_births >= 1 AND o.births > o.gone_births AS grows
FROM owners o LEFT JOIN module_name m ON m.id = o.module_id;

-- How much a rank grows from from_step to to_step. grown_bytes: the owners that grow, together. allocated_bytes: what is
-- allocated more at the steps' ends, with what only comes and goes. bytes is the latter where the two agree to a tenth, else
-- the former: a large last batch is no growth.
CREATE VIEW rank_growth AS
SELECT *, bytes * 1.0 / (to_step - from_step) AS per_step_bytes FROM (
  SELECT g.*, iif(abs(allocated_bytes - grown_bytes) * 10 <= allocated_bytes, allocated_bytes, grown_bytes) AS bytes FROM (
    SELECT o.rank, o.from_step, o.to_step, l.end_allocated_bytes - e.end_allocated_bytes AS allocated_bytes,
      coalesce(sum(o.bytes) FILTER (WHERE o.grows), 0) AS grown_bytes, sum(o.grows) AS owners
    FROM owner_growth o JOIN step e ON e.rank = o.rank AND e.step = o.from_step
    JOIN step l ON l.rank = o.rank AND l.step = o.to_step GROUP BY o.rank) g);

-- The outermost ranges of ranks that have fewer than four whole steps, in their order: a server's requests, a loop's evaluations.
CREATE VIEW outermost_call AS
SELECT p.rank, row_number() OVER (PARTITION BY p.rank ORDER BY p.start_ns, p.id) - 1 AS call, p.id, p.name, p.kind, p.start_ns, p.end_ns
FROM phase p WHERE p.parent_id IS NULL AND p.end_ns IS NOT NULL AND p.kind <> 'step'
  AND p.rank NOT IN (SELECT rank FROM whole_steps WHERE steps >= 4);

-- As owner_growth, of ranks without steps: more (or less) at the end of the last call than at the end of an early one, from_call:
-- the third, or an earlier one of fewer than six. births: in how many of eight equal stretches of the time between it was made.
CREATE VIEW owner_growth_by_call AS
WITH calls AS MATERIALIZED (SELECT rank, call, end_ns FROM outermost_call),
ends AS (SELECT rank, max(call) AS to_call, max(end_ns) AS last_ns FROM calls GROUP BY rank HAVING count(*) >= 4),
spans AS MATERIALIZED (
  SELECT e.rank, e.to_call, e.last_ns, c.call AS from_call, c.end_ns AS early_ns, max((e.last_ns - c.end_ns) / 8, 1) AS stretch_ns
  FROM ends e JOIN calls c ON c.rank = e.rank AND c.call = min(e.to_call - 3, 2)),
held AS MATERIALIZED (
  SELECT s.rank, s.from_call, s.to_call, a.category, a.detail, a.module_id, a.phase_id, a.bytes, a.alloc_ns > s.early_ns AS made,
    (a.alloc_ns - s.early_ns) / s.stretch_ns AS stretch
  FROM spans s JOIN allocation a ON a.rank = s.rank JOIN rank r ON r.rank = s.rank AND a.device = r.device
  WHERE iif(a.alloc_ns > s.early_ns, a.alloc_ns <= s.last_ns AND coalesce(a.free_ns > s.last_ns, 1),
    a.free_ns > s.early_ns AND a.free_ns <= s.last_ns)),
made_in AS MATERIALIZED (
  SELECT n.id, n.kind FROM (SELECT DISTINCT phase_id AS id FROM held) made JOIN phase_named n ON n.id = made.id),
owners AS (
  SELECT h.rank, h.from_call, h.to_call, h.category, h.detail, h.module_id, f.kind AS phase,
    sum(iif(made, h.bytes, -h.bytes)) AS bytes, sum(made) AS allocations, count(DISTINCT iif(made, stretch, NULL)) AS births,
    count(DISTINCT iif(made AND stretch >= 4, stretch, NULL)) AS late_births,
    count(DISTINCT iif(made, NULL, stretch)) AS gone_births
  FROM held h LEFT JOIN made_in f ON f.id = h.phase_id
  GROUP BY h.rank, h.category, h.detail, h.module_id, f.kind)
SELECT o.rank, o.from_call, o.to_call, o.category, o.detail, o.module_id, coalesce(m.name, '') AS module, o.phase, o.bytes,
  o.bytes * 1.0 / (o.to_call - o.from_call) AS per_call_bytes, o.allocations, o.births, o.late_births, o.gone_births,
  o.bytes > 0 AND o.births >= 2 AND o.late_births >= 1 AND o.births > o.gone_births AS grows
FROM owners o LEFT JOIN module_name m ON m.id = o.module_id;

-- What outlives its step and the next one, in groups that have the same module, phase, category and size. A group's first
-- survivor opens the steps that count (possible); the last step of a rank does not, since nobody knows yet what survives it. It
-- grows when each of these steps left something that is still alive at the end; two steps are the least that can show it. growth: bytes that each step adds.
CREATE VIEW growth AS
WITH made AS (
  SELECT rank, module, phase, category, detail, decided_by, size_bytes, min(step) AS first_step, max(step) AS last_step,
    count(*) AS steps, count(*) FILTER (WHERE kept_bytes > 0) AS kept_steps, sum(bytes) AS bytes,
    sum(allocations) AS allocations, sum(kept_bytes) AS kept_bytes
  FROM survivors GROUP BY rank, module, phase, category, detail, decided_by, size_bytes),
span AS (
  SELECT made.*, (SELECT iif(k.last_step - k.first_step = k.steps - 1, -- no number is missing, so none needs to be looked at
      k.last_step - max(made.first_step, k.first_step),
      (SELECT count(*) - 1 FROM step s WHERE s.rank = made.rank AND s.step >= made.first_step))
    FROM rank_steps k WHERE k.rank = made.rank) AS possible
  FROM made),
sorted AS (
  SELECT *, CASE WHEN kept_steps = possible AND possible >= 2 THEN 'growth' WHEN kept_bytes < bytes THEN 'passing'
    WHEN steps > 1 THEN 'some_steps' ELSE 'once' END AS pattern FROM span)
SELECT *, CASE WHEN pattern = 'growth' THEN kept_bytes / possible END AS growth FROM sorted;

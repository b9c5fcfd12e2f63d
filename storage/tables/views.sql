-- Views over the permanent tables of tables.def. They hold no data: drop and rebuild them at will.
-- A step that repeats another one (step.same_as) is in all of them by that one's rows, with its own number: bytes are its
-- own to the byte, instants (at_ns) are those of the step that it repeats.

-- The steps among the periods, one row a training step of a rank: from its first zero_grad or forward to the end of its
-- optimizer step. before_…: the highest bytes between the step before (or the start) and this one.
CREATE VIEW step AS
SELECT p.rank, p.step, p.period, (SELECT q.step FROM period q WHERE q.rank = p.rank AND q.period = p.same_as) AS same_as,
  p.start_ns, p.end_ns, p.peak_ns, p.peak_phase_id, p.peak_module_id, p.peak_requested_bytes, p.peak_allocated_bytes,
  p.peak_active_bytes, p.peak_reserved_bytes, p.peak_device_bytes,
  (SELECT q.peak_allocated_bytes FROM period q WHERE q.rank = p.rank AND q.period = p.period - 1) AS before_allocated_bytes,
  (SELECT q.peak_reserved_bytes FROM period q WHERE q.rank = p.rank AND q.period = p.period - 1) AS before_reserved_bytes,
  p.end_requested_bytes, p.end_allocated_bytes, p.end_active_bytes, p.end_reserved_bytes, p.end_largest_free_bytes,
  p.end_inactive_split_bytes, p.checked
FROM period p WHERE p.kind = 'step';

-- A module's name as people and PyTorch's trackers write it: the root's class, then the FQN. Of several roots of one class in
-- a process each has its number, in the order in which they were first called: "Model (2).head". label: short, a root by its
-- class and number, another module by its FQN alone, where no other model has it and the root has no number.
-- root_number is there for a single one, too.
CREATE VIEW module_name AS
SELECT id, rank, fqn, root || iif(fqn = '', '', '.' || fqn) AS name, CASE WHEN fqn = '' THEN coalesce(nullif(root, ''), '(root)')
    WHEN root <> root_class OR EXISTS (SELECT 1 FROM module o WHERE o.rank = n.rank AND o.fqn = n.fqn AND o.root_id <> n.root_id)
      THEN root || '.' || fqn
    ELSE fqn END AS label, root_class, root_number
FROM (SELECT *, coalesce(root_class, '') || iif(EXISTS (SELECT 1 FROM module o WHERE o.rank = r.rank AND o.parent_id IS NULL
      AND o.class = r.root_class AND o.id <> r.root_id), ' (' || root_number || ')', '') AS root
  FROM (SELECT m.id, m.rank, m.fqn, m.root_id, r.class AS root_class, (SELECT count(*) FROM module o WHERE o.rank = r.rank
      AND o.parent_id IS NULL AND o.class IS r.class AND o.id <= r.id) AS root_number
    FROM module m LEFT JOIN module r ON r.id = coalesce(m.root_id, m.id)) r) n;

-- Each period and where it lies, in words, with the period whose rows stand for it.
CREATE VIEW period_place AS
SELECT p.rank, p.period, p.kind, iif(p.kind = 'step', p.step, NULL) AS step, coalesce(p.same_as, p.period) AS rows_of,
  CASE p.kind WHEN 'setup' THEN coalesce('before step ' || (SELECT q.step FROM period q WHERE q.rank = p.rank
      AND q.period > p.period AND q.kind = 'step' ORDER BY q.period LIMIT 1), 'before any step')
    WHEN 'step' THEN 'step ' || p.step
    WHEN 'between' THEN coalesce('between steps ' || p.step || ' and ' || (SELECT q.step FROM period q WHERE q.rank = p.rank
      AND q.period > p.period AND q.kind = 'step' ORDER BY q.period LIMIT 1), 'after step ' || p.step)
    WHEN 'end' THEN 'after step ' || p.step
    WHEN 'cut' THEN 'in a stretch that was dropped from the record'
    ELSE 'in a job without steps' END || coalesce(' (' || p.name || ')', '') AS place
FROM period p;

-- A range in words: of the user's its own name, of a module's forward its module.
CREATE VIEW range_label AS
SELECT p.id, CASE WHEN p.kind = 'user' THEN '"' || p.name || '"' WHEN p.kind = 'step' THEN 'step ' || p.step
  WHEN p.kind IN ('forward', 'backward', 'recompute', 'eval') THEN p.kind || coalesce(' of ' || n.name, '')
  ELSE p.name END AS label
FROM phase p LEFT JOIN module_name n ON n.id = p.module_id;

-- A range with those around it, from outside to inside: "step 3 > forward of Model > FSDP::all_gather (blocks.0)".
CREATE VIEW range_path AS
SELECT i.id, (
  WITH RECURSIVE around(id, depth) AS (
    SELECT i.id, 0
    UNION ALL
    SELECT p.parent_id, depth + 1 FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
  SELECT group_concat(label, ' > ') FROM (SELECT label FROM around JOIN range_label l ON l.id = around.id ORDER BY depth DESC)
) AS path
FROM phase i;

-- How a rank ended: out of memory where no step began after a refused request.
CREATE VIEW rank_ending AS
SELECT r.rank, CASE WHEN EXISTS (SELECT 1 FROM oom o WHERE o.rank = r.rank AND NOT EXISTS (
    SELECT 1 FROM step s WHERE s.rank = o.rank AND s.start_ns > o.at_ns)) THEN 'out of memory'
  WHEN r.fidelity = 'snapshot' THEN 'snapshot' WHEN r.clean_exit THEN 'clean' ELSE 'cut off' END AS ended
FROM rank r;

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

-- What the whole device held when modules reached their states, of every step.
CREATE VIEW step_snapshot AS
SELECT s.rank, s.step, n.module_id, n.call_index, n.state, n.at_ns, n.category, n.bytes, n.tracker_bytes
FROM step s CROSS JOIN snapshot n ON n.rank = s.rank AND n.step = coalesce(s.same_as, s.step);

-- The snapshots as FSDPMemTracker would show them: its words, its labels at that instant, zeros and the total included
-- (storage/tracker/tracker_label.h says where its labels differ from the ledger's categories). fully_shard renames the classes that it
-- shards, so that the tracker's FQNs start with FSDP and the root's class; replicate puts Replicate there. It keeps one Peak Forward over all calls.
CREATE VIEW fsdp_snapshot AS
WITH tracked(id, fqn) AS (
  SELECT m.id, CASE WHEN r.is_fsdp AND r.class NOT LIKE 'Replicate%' THEN 'FSDP' ELSE '' END || coalesce(r.class, '') ||
    iif(m.fqn = '', '', '.' || m.fqn)
  FROM module m JOIN module r ON r.id = m.root_id),
word(category) AS (SELECT DISTINCT fsdp_word FROM category UNION ALL SELECT 'Total'),
state AS (
  SELECT rank, step, module_id, call_index, state, bytes, iif(state = 'Peak Forward', 0, call_index) AS call FROM (
    SELECT *, row_number() OVER (PARTITION BY rank, step, module_id, state ORDER BY bytes DESC, call_index) AS place FROM (
      SELECT rank, step, module_id, call_index, state, sum(tracker_bytes) AS bytes FROM step_snapshot
      GROUP BY rank, step, module_id, call_index, state))
  WHERE state <> 'Peak Forward' OR place = 1),
worded AS (
  SELECT s.rank, s.step, s.module_id, s.call_index, s.state, coalesce(c.fsdp_word, 'Other') AS category,
    s.tracker_bytes AS bytes
  FROM step_snapshot s LEFT JOIN category c ON c.name = s.category)
SELECT a.rank, a.step, a.module_id, m.fqn, a.call, a.state, w.category, iif(w.category = 'Total', a.bytes,
  coalesce((SELECT sum(bytes) FROM worded x WHERE x.rank = a.rank AND x.step = a.step AND x.module_id = a.module_id
    AND x.call_index = a.call_index AND x.state = a.state AND x.category = w.category), 0)) AS bytes
FROM state a JOIN tracked m ON m.id = a.module_id CROSS JOIN word w;

-- The snapshots as MemTracker would show them, of models without FSDP2: its words, its labels at that instant. It meets a
-- wrapper and the module in it one by one, and only the latter is called again by activation checkpointing.
CREATE VIEW module_snapshot AS
WITH RECURSIVE path(id, own, inner) AS (
  SELECT id, CASE WHEN wraps = 'module' THEN 'DistributedDataParallel' ELSE coalesce(class, '') END,
    CASE WHEN wraps = 'module' THEN 'DistributedDataParallel' ELSE coalesce(class, '') END || coalesce('.' || wraps, '')
  FROM module WHERE parent_id IS NULL
  UNION ALL
  SELECT m.id, p.inner || '.' || substr(m.fqn, CASE q.fqn WHEN '' THEN 1 ELSE length(q.fqn) + 2 END),
    p.inner || '.' || substr(m.fqn, CASE q.fqn WHEN '' THEN 1 ELSE length(q.fqn) + 2 END) || coalesce('.' || m.wraps, '')
  FROM path p JOIN module m ON m.parent_id = p.id JOIN module q ON q.id = p.id),
called(id, fqn, again) AS (
  SELECT id, own, own = inner FROM path
  UNION ALL
  SELECT id, inner, 1 FROM path WHERE own <> inner),
word(category) AS (SELECT DISTINCT tracker_word FROM category UNION ALL SELECT 'Total'),
state AS (
  SELECT rank, step, module_id, call_index, state, sum(tracker_bytes) AS bytes FROM step_snapshot
  WHERE state IN ('Pre-Forward','Post-Forward','Peak-Forward','Pre-Backward','Post-Backward','Peak-Backward','Pre-Forward-AC','Post-Forward-AC')
  GROUP BY rank, step, module_id, call_index, state),
worded AS (
  SELECT s.rank, s.step, s.module_id, s.call_index, s.state, coalesce(c.tracker_word, 'Other') AS category,
    s.tracker_bytes AS bytes
  FROM step_snapshot s LEFT JOIN category c ON c.name = s.category)
SELECT a.rank, a.step, a.module_id, m.fqn, a.call_index AS call, a.state, w.category, iif(w.category = 'Total', a.bytes,
  coalesce((SELECT sum(bytes) FROM worded x WHERE x.rank = a.rank AND x.step = a.step AND x.module_id = a.module_id
    AND x.call_index = a.call_index AND x.state = a.state AND x.category = w.category), 0)) AS bytes
FROM state a JOIN called m ON m.id = a.module_id CROSS JOIN word w
WHERE m.again OR a.state NOT LIKE '%-AC';

-- What no rule covered at each period's highest point. step is NULL outside of steps.
CREATE VIEW unattributed AS
SELECT s.rank, s.step, s.period, coalesce(o.phase, 'outside') AS phase, sum(o.bytes) AS bytes, sum(o.allocations) AS allocations
FROM period_place s JOIN peak_owner o ON o.rank = s.rank AND o.period = s.rows_of
WHERE o.category = 'unattributed' GROUP BY s.rank, s.period, o.phase;

-- What a thread is called: main, backward where autograd runs backward on it, else by its number.
CREATE VIEW thread_label AS
SELECT t.rank, t.tid, CASE WHEN t.tid = r.pid THEN 'main' WHEN t.runs_backward THEN 'backward' ELSE 'thread ' || t.tid END AS label
FROM (SELECT rank, tid, max(kind = 'backward') AS runs_backward FROM (
    SELECT rank, tid, kind FROM phase UNION ALL SELECT rank, tid, 'call' FROM collective) GROUP BY rank, tid) t
JOIN rank r ON r.rank = t.rank;

-- The kind of each phase: of one that is only a name (user), the innermost kind around it that is more, where there is one.
CREATE VIEW phase_named AS
SELECT id, (
  WITH RECURSIVE around(kind, parent_id) AS (
    SELECT named.kind, named.parent_id
    UNION ALL
    SELECT p.kind, p.parent_id FROM around JOIN phase p ON p.id = around.parent_id WHERE around.kind = 'user')
  SELECT kind FROM around ORDER BY kind = 'user' LIMIT 1) AS kind
FROM phase named;

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

-- The owners of a device's memory in words, in the order in which people ask for them. Others are libraries, by their file's
-- name; they stand behind cuDNN, at 11.5.
CREATE VIEW device_owner_meaning AS
SELECT column1 AS owner, column2 AS meaning, row_number() OVER () AS place FROM (VALUES
  ('used', 'all that is in use, as the driver says'),
  ('allocated', 'tensors: memory_allocated() of PyTorch without the workspaces'),
  ('cublas_workspace', 'workspaces that PyTorch made for cuBLAS, also in memory_allocated()'),
  ('pending', 'freed by PyTorch, but another stream may still use it'),
  ('cached', 'free in PyTorch''s cache, part of memory_reserved()'),
  ('private_pools', 'CUDA graphs'' and MemPools'' part of memory_reserved(), used or free'),
  ('pytorch', 'PyTorch''s; its allocator was not recorded'),
  ('pytorch_other', 'PyTorch''s, not in memory_reserved() as recorded'),
  ('nccl', 'NCCL''s buffers'),
  ('cublas', 'workspaces that cuBLAS made itself'),
  ('cudnn', 'cuDNN''s own'),
  ('driver_pools', 'kept by the driver''s pools of cudaMallocAsync after a free, at most'),
  ('cuda_context', 'the CUDA context, before any GPU code; about 12 MiB of it for CUPTI'),
  ('gpu_code', 'kernels: what came while GPU code was loaded'),
  ('context_and_code', 'the CUDA context and kernels, first measured together'),
  ('other_processes', 'other processes on this GPU, as NVML says'),
  ('unexplained', 'what nobody owns'));

-- At every sample of the device: who holds what. `used` is what the driver says, the sum of all others; `unexplained` is
-- there also when it is 0. The owners are explained in docs/device.md.
CREATE VIEW device_balance AS
SELECT rank, device, at_ns, owner, bytes FROM device_owner WHERE owner <> 'unexplained'
UNION ALL
SELECT rank, device, at_ns, 'used', used_bytes FROM device_sample
UNION ALL
SELECT d.rank, d.device, d.at_ns, 'unexplained', coalesce((SELECT sum(bytes) FROM device_owner o WHERE o.rank = d.rank
  AND o.device = d.device AND o.at_ns = d.at_ns AND o.owner = 'unexplained'), 0)
FROM device_sample d;

-- How far each host's clock is ahead of that of the first rank's host, from the ends of collectives that both took part in: a
-- collective ends on all its ranks at nearly the same time, so the median difference of the ends counts. Hosts that share none
-- with it are compared through others: hops of them, by the fewest; collectives are those of the last hop. error_ns: it is off
-- by that at most, as no rank's part ends before every other's has begun; NULL where no operation was one that all wait for.
-- Hosts that nothing connects are not here.
CREATE VIEW host_clock AS
WITH RECURSIVE ends AS MATERIALIZED (
  SELECT c.comm, c.seq, r.host, max(c.end_ns) AS end_ns, min(c.end_ns) AS first_end_ns,
    max(iif(c.operation IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AlltoAll'), c.start_ns, NULL)) AS last_start_ns
  FROM collective c JOIN rank r ON r.rank = c.rank
  WHERE c.end_ns IS NOT NULL AND c.comm IS NOT NULL AND c.operation NOT IN ('Send', 'Recv')
    AND (SELECT count(DISTINCT host) FROM rank) > 1
  GROUP BY c.comm, c.seq, r.host),
first AS (SELECT host FROM rank ORDER BY rank LIMIT 1),
node AS MATERIALIZED (SELECT host, ',' || row_number() OVER (ORDER BY host) || ',' AS mark FROM (SELECT DISTINCT host FROM rank)),
member AS MATERIALIZED (SELECT host, comm, min(seq) AS from_seq, max(seq) AS to_seq FROM ends GROUP BY host, comm),
link AS MATERIALIZED (
  SELECT DISTINCT a.host, m.mark, b.host AS other, n.mark AS other_mark FROM member a JOIN member b ON b.comm = a.comm
    AND b.host <> a.host AND b.from_seq <= a.to_seq AND b.to_seq >= a.from_seq
  JOIN node m ON m.host = a.host JOIN node n ON n.host = b.host),
walk(hops, marks, before) AS ( -- marks: of all hosts within so many hops
  SELECT 0, mark, 0 FROM node JOIN first USING (host)
  UNION ALL
  SELECT hops + 1, marks || coalesce((SELECT group_concat(other_mark, '') FROM (SELECT DISTINCT other_mark FROM link
    WHERE instr(walk.marks, mark) AND NOT instr(walk.marks, other_mark))), ''), length(marks)
  FROM walk WHERE length(marks) > before),
distance AS MATERIALIZED (SELECT n.host, min(w.hops) AS hops FROM walk w JOIN node n ON instr(w.marks, n.mark) GROUP BY n.host),
way AS MATERIALIZED ( -- of each host, the one that it is compared with
  SELECT d.host, min(k.other) AS other FROM distance d JOIN link k ON k.host = d.host
  JOIN distance n ON n.host = k.other AND n.hops = d.hops - 1 GROUP BY d.host),
difference AS (
  SELECT w.host, w.other, e.end_ns - f.end_ns AS ns,
    row_number() OVER (PARTITION BY w.host ORDER BY e.end_ns - f.end_ns) AS place,
    count(*) OVER (PARTITION BY w.host) AS collectives,
    max(e.last_start_ns - f.first_end_ns) OVER (PARTITION BY w.host) AS least_ns,
    min(e.first_end_ns - f.last_start_ns) OVER (PARTITION BY w.host) AS most_ns
  FROM way w JOIN ends e ON e.host = w.host JOIN ends f ON f.comm = e.comm AND f.seq = e.seq AND f.host = w.other),
chain(host, offset_ns, collectives, hops, error_ns) AS (
  SELECT host, CAST(0 AS INTEGER), CAST(NULL AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER) FROM first
  UNION ALL
  SELECT d.host, c.offset_ns + d.ns, d.collectives, c.hops + 1, c.error_ns + max(d.most_ns - d.ns, d.ns - d.least_ns, 0)
  FROM chain c JOIN difference d ON d.other = c.host WHERE d.place = (d.collectives + 1) / 2)
SELECT * FROM chain;

-- Ranks of the job that are not in the ledger: from first to last. Of a rehearsal none is missing: nobody else was there.
CREATE VIEW missing_ranks AS
SELECT rank + 1 AS first, next - 1 AS last FROM (
  SELECT rank, lead(rank, 1, (SELECT max(world_size) FROM rank)) OVER (ORDER BY rank) AS next
  FROM (SELECT -1 AS rank UNION ALL SELECT rank FROM rank))
WHERE next > rank + 1 AND NOT EXISTS (SELECT 1 FROM rank WHERE rehearsal IS NOT NULL);

-- What NCCL takes of the device for a communicator whose ranks are on one host with NVLink, by what it is used for, as measured with
-- two H200 and the version of NCCL that measured_version says (docs/nccl.md): 24 channels of collectives and 32 of sends and receives.
-- An estimate elsewhere. group_number: of a rehearsed rank (rehearsed_group), which has no communicator; comm and recorded_bytes: of a
-- real one. rings, sends, receives: 1 where there was such a call. Communicators of one rank are not in it.
CREATE VIEW nccl_estimate AS
SELECT rank, group_number, comm, nranks, rings, sends, receives, recorded_bytes,
  1048576 * (4 + 32 * 6 + rings * 24 * (2 + 10) + sends * 32 * 2 + receives * 32 * 10) AS estimated_bytes,
  '2.28.9' AS measured_version
FROM (
  SELECT rank, number AS group_number, NULL AS comm, nranks, rings, sends, receives, NULL AS recorded_bytes FROM rehearsed_group
  UNION ALL
  SELECT c.rank, NULL, c.comm, c.nranks,
    max(coalesce(k.operation IN ('AllGather', 'AllReduce', 'Broadcast', 'Reduce', 'ReduceScatter'), 0)),
    max(coalesce(k.operation IN ('AlltoAll', 'Send'), 0)), max(coalesce(k.operation IN ('AlltoAll', 'Recv'), 0)), c.device_bytes
  FROM communicator c LEFT JOIN collective k ON k.rank = c.rank AND k.comm = c.comm
  WHERE c.nranks > 1 AND c.device_bytes > 0 GROUP BY c.rank, c.comm) u
WHERE nranks > 1;

-- What each rehearsed rank (docs/rehearse.md) takes of a device of its own: what PyTorch reserved at most, and the most that was
-- in use beside that in one sample, without other processes and NCCL, which a rehearsal does not have. device_bytes: what the
-- device was to have, and what the real one has. refused: requests that ended in an out-of-memory error.
CREATE VIEW rehearsal_need AS
SELECT r.rank, r.world_size, coalesce(r.rehearsal_bytes, r.device_bytes) AS device_bytes, r.device_bytes AS real_device_bytes,
  (SELECT max(p.peak_reserved_bytes) FROM period p WHERE p.rank = r.rank) AS reserved_bytes,
  (SELECT max(s.bytes) FROM (
    SELECT sum(o.bytes) AS bytes FROM device_owner o WHERE o.rank = r.rank AND o.device = coalesce(r.device, o.device)
      AND o.owner NOT IN ('allocated', 'cublas_workspace', 'cached', 'other_processes', 'nccl', 'unexplained')
    GROUP BY o.at_ns) s) AS other_bytes,
  (SELECT count(*) FROM oom m WHERE m.rank = r.rank) AS refused
FROM rank r WHERE r.rehearsal IS NOT NULL;

-- The ranks that did not end in order, and when. how: 'out of memory', at the request after which no step began; 'waiting': its
-- log just stops, and for a second or more before that it began nothing, with a collective that had not ended: the first such
-- one in the step, or where device times tell nothing of the step, the last call; 'killed': its log just stops (also of a crash,
-- or while it still runs). first_host_ns: at_ns by the first rank's host's clock, error_ns as in host_clock; NULL where the
-- clocks can't be compared, so that the order is unknown. waiting_since_ns: the call, by its own clock.
CREATE VIEW rank_death AS
WITH refused AS MATERIALIZED (
  SELECT o.rank, min(o.at_ns) AS at_ns FROM oom o WHERE NOT EXISTS (
    SELECT 1 FROM step s WHERE s.rank = o.rank AND s.start_ns > o.at_ns) GROUP BY o.rank),
silent AS MATERIALIZED (
  SELECT r.rank FROM rank r WHERE NOT r.clean_exit AND r.end_ns - 1000000000 >= max(
    coalesce((SELECT max(p.start_ns) FROM phase p WHERE p.rank = r.rank), r.start_ns),
    coalesce((SELECT max(a.alloc_ns) FROM allocation a WHERE a.rank = r.rank), r.start_ns))),
last_call AS MATERIALIZED (
  SELECT rank, max(enqueue_ns) AS last_ns, step FROM collective WHERE rank IN (SELECT rank FROM silent) GROUP BY rank),
call AS MATERIALIZED (
  SELECT c.*, l.last_ns, max(iif(c.end_ns IS NULL, NULL, c.enqueue_ns)) OVER (PARTITION BY c.rank) AS ended_ns
  FROM collective c CROSS JOIN last_call l ON l.rank = c.rank AND l.step IS c.step),
waited AS MATERIALIZED (
  SELECT rank, comm, seq, operation, module_id, min(enqueue_ns) AS enqueue_ns FROM call
  WHERE end_ns IS NULL AND iif(ended_ns IS NULL, enqueue_ns = last_ns, enqueue_ns > ended_ns) GROUP BY rank),
death AS (
  SELECT r.rank, r.host, CASE WHEN f.rank IS NOT NULL THEN 'out of memory' WHEN l.rank IS NOT NULL THEN 'waiting'
    ELSE 'killed' END AS how, coalesce(f.at_ns, r.end_ns) AS at_ns, l.operation, l.comm, l.seq,
    l.module_id, l.enqueue_ns
  FROM rank r LEFT JOIN refused f ON f.rank = r.rank LEFT JOIN waited l ON l.rank = r.rank AND f.rank IS NULL
  WHERE f.rank IS NOT NULL OR NOT r.clean_exit)
SELECT d.rank, d.host, d.how, d.at_ns, d.at_ns - coalesce(h.offset_ns, iif(u.hosts = 1, 0, NULL)) AS first_host_ns,
  coalesce(h.error_ns, iif(u.hosts = 1, 0, NULL)) AS error_ns, d.operation AS waiting_in, d.comm AS waiting_comm,
  d.seq AS waiting_seq, n.name AS waiting_module, d.enqueue_ns AS waiting_since_ns
FROM death d CROSS JOIN (SELECT count(DISTINCT coalesce(host, '')) AS hosts FROM rank) u
LEFT JOIN host_clock h ON h.host = d.host LEFT JOIN module_name n ON n.id = d.module_id;

-- Each NCCL call with what it cost; those of steps that repeat another one are only in collective_total. delay_ns: from the host's call to the start on the device. duration_ns: on the device;
-- share_ns: its part of that where one kernel served several calls, exposed_share_ns: the exposed part of this. arrival_ns: its start on the first host's clock;
-- late_ns: after the first rank to arrive; spread_ns: from the first to the last; NULL where not all of the ledger's ranks in it are known; is_last: this rank was that last one
-- (nobody is where all came at once), and others_waited_ns is how long the others waited for it, in sum.
-- transfer_ns: the shortest share of all ranks, that is without waiting for others; NULL where one's time is not known. algorithm_bytes and bus_bytes are
-- NCCL-tests' definitions: divided by a time they are its algorithm and bus bandwidth. meeting_id is the same of all calls of one collective.
CREATE VIEW collective_cost AS
SELECT id, rank, comm, seq, operation, bytes, module_id, step, nranks, enqueue_ns, start_ns, end_ns,
  end_ns - start_ns AS duration_ns, (end_ns - start_ns) * 1.0 / kernel_calls AS share_ns,
  exposed_ns * 1.0 / kernel_calls AS exposed_share_ns, transfer_ns, start_ns - enqueue_ns AS delay_ns, arrival_ns,
  late_ns, spread_ns, spread_ns IS NOT NULL AND late_ns = spread_ns AND spread_ns > 0 AS is_last, others_waited_ns,
  bytes * CASE operation WHEN 'AllGather' THEN nranks WHEN 'ReduceScatter' THEN nranks WHEN 'AlltoAll' THEN nranks
    WHEN 'Gather' THEN nranks WHEN 'Scatter' THEN nranks ELSE 1 END AS algorithm_bytes,
  bytes * CASE operation WHEN 'AllGather' THEN nranks - 1.0 WHEN 'ReduceScatter' THEN nranks - 1.0
    WHEN 'AllReduce' THEN 2.0 * (nranks - 1) / nranks WHEN 'AlltoAll' THEN nranks - 1.0 WHEN 'Gather' THEN nranks - 1.0
    WHEN 'Scatter' THEN nranks - 1.0 ELSE 1.0 END AS bus_bytes, meeting_id
FROM collective c LEFT JOIN collective_meeting m ON m.collective_id = c.id;

-- Who was late: how often each rank arrived last, how far behind the first, and how long the others waited for it in all.
CREATE VIEW straggler AS
SELECT rank, count(*) AS collectives, sum(is_last) AS last, avg(is_last) AS share,
  avg(spread_ns) FILTER (WHERE is_last) AS mean_late_ns, max(spread_ns) FILTER (WHERE is_last) AS max_late_ns,
  coalesce(sum(others_waited_ns), 0) AS others_waited_ns
FROM collective_cost WHERE spread_ns IS NOT NULL GROUP BY rank;

-- Where in the code each site is: the line that its call stack is named by, and the operator. stack_of as in site. All of file,
-- line and function are NULL where no Python code is known.
CREATE VIEW site_line AS
SELECT s.id AS site_id, s.rank, s.frame_id, f.file, f.line, f.function, f.code_of, s.operator_name, s.stack_of
FROM site s LEFT JOIN frame f ON f.id = s.line_id;

-- Each call stack as a text, outermost frame first: path has the frames of the user's own code (all where there are none of
-- these), full_path all. "main train.py:40 > Net.forward model.py:12".
CREATE VIEW stack_path AS
WITH RECURSIVE down(frame_id, rank, full_path, users) AS (
  SELECT id, rank, function || ' ' || file || coalesce(':' || line, ''),
    iif(code_of = 'user', function || ' ' || file || coalesce(':' || line, ''), '')
  FROM frame WHERE caller_id IS NULL
  UNION ALL
  SELECT f.id, f.rank, d.full_path || ' > ' || f.function || ' ' || f.file || coalesce(':' || f.line, ''),
    d.users || iif(f.code_of = 'user', iif(d.users = '', '', ' > ') || f.function || ' ' || f.file || coalesce(':' || f.line, ''), '')
  FROM down d JOIN frame f ON f.caller_id = d.frame_id)
SELECT frame_id, rank, iif(users = '', full_path, users) AS path, full_path FROM down;

-- What was allocated at each period's highest point, by where in the code it was made. site_id NULL: that was not recorded.
-- step is NULL outside of steps; place is the period in words.
CREATE VIEW site_at_peak AS
SELECT p.rank, p.step, p.period, p.place, c.site_id, l.frame_id, l.file, l.line, l.function, l.code_of, l.operator_name, l.stack_of,
  c.category, c.module_id, c.bytes, c.allocations
FROM period_place p JOIN peak_site c ON c.rank = p.rank AND c.period = p.rows_of LEFT JOIN site_line l ON l.site_id = c.site_id;

-- The same by line. backward_bytes: of these, what backward operators made whose forward operator is of this line.
CREATE VIEW line_at_peak AS
SELECT rank, step, period, place, file, line, function, code_of, category, sum(bytes) AS bytes, sum(allocations) AS allocations,
  coalesce(sum(bytes) FILTER (WHERE stack_of = 'forward'), 0) AS backward_bytes
FROM site_at_peak GROUP BY rank, step, period, place, file, line, function, code_of, category;

-- The same by operator of PyTorch; operators are recorded in the steps of SHARDLEDGER_STACKS only.
CREATE VIEW operator_at_peak AS
SELECT rank, step, period, place, operator_name, category, sum(bytes) AS bytes, sum(allocations) AS allocations
FROM site_at_peak GROUP BY rank, step, period, place, operator_name, category;

-- The periods at whose peak uses were followed, with the stretch in which they were: a window of use_window.
CREATE VIEW followed_period AS
SELECT p.rank, p.period, p.kind, p.step, p.peak_ns, p.peak_allocated_bytes, w.start_ns AS window_start_ns, w.end_ns AS window_end_ns,
  w.sees_launches
FROM period p JOIN use_window w ON w.rank = p.rank AND w.start_ns <= p.peak_ns AND coalesce(w.end_ns, p.peak_ns + 1) > p.peak_ns;

-- Of what was allocated at the peak of a period in which uses were followed, that which no operator was using any more, or not yet.
-- state: late: last used before the peak, and freed later (idle_until_ns), without a use in between. early: made without a value,
-- and not used before the peak (idle_until_ns: its first use, or its free; NULL: neither was followed). hidden: late or early, but a
-- kernel that no operator launched may have used it meanwhile. kept: not used again while that was followed, but alive when that
-- ended, or freed outside of it: it may be needed yet. idle_ns: since when, up to the peak. last_use_site_id: the operator that used
-- it last, of an early one after the peak. What has less than 512 B is left out: its uses are not followed.
CREATE VIEW idle_at_peak AS
SELECT rank, step, period, place, peak_ns, allocation_id, bytes, category, module_id, site_id, last_use_site_id, last_use_ns,
  peak_ns - coalesce(last_use_ns, alloc_ns) AS idle_ns, iif(state = 'kept', NULL, idle_until_ns) AS idle_until_ns, use_step,
  CASE WHEN state = 'kept' THEN 'kept'
    WHEN NOT sees_launches OR (state = 'late' AND hidden_last_ns > peak_ns) OR (state = 'early' AND hidden_first_ns <= peak_ns) THEN 'hidden'
    ELSE state END AS state
FROM (
  SELECT p.rank, n.step, p.period, n.place, p.peak_ns, a.id AS allocation_id, a.bytes, a.category, a.module_id, a.site_id, a.alloc_ns,
    u.last_use_site_id, iif(u.first_use_ns > p.peak_ns, NULL, u.last_use_ns) AS last_use_ns, u.use_step, u.hidden_first_ns, u.hidden_last_ns,
    p.sees_launches,
    CASE WHEN u.first_use_ns <= p.peak_ns THEN
        iif(a.free_ns <= coalesce(p.window_end_ns, a.free_ns) OR u.use_step IS NOT NULL, 'late', 'kept')
      WHEN a.alloc_ns < p.window_start_ns THEN 'kept'
      ELSE 'early' END AS state,
    iif(u.first_use_ns > p.peak_ns, u.first_use_ns, a.free_ns) AS idle_until_ns
  FROM followed_period p JOIN period_place n ON n.rank = p.rank AND n.period = p.period
  JOIN rank r ON r.rank = p.rank
  JOIN allocation a ON a.rank = p.rank AND a.device = r.device AND a.alloc_ns < p.peak_ns AND coalesce(a.free_ns, p.peak_ns + 1) > p.peak_ns
    AND a.requested_bytes >= 512
  LEFT JOIN allocation_use u ON u.allocation_id = a.id
  WHERE coalesce(u.first_use_ns > p.peak_ns OR u.last_use_ns < p.peak_ns, 1));

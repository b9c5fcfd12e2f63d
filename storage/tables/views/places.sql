-- Views over the permanent tables of tables.def. They hold no data: drop and rebuild them at will.
-- A step that repeats another one (step.same_as) is in all of them by that one's rows, with its own number: bytes are its
-- own to the byte, instants (at_ns) are those of the step that it repeats.
--
-- What the places of a rank's life are called: its steps and periods, its modules, ranges and threads.

-- name: views

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

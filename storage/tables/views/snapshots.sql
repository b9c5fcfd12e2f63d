-- The device's bytes at each state of a module, in the words of PyTorch's trackers.

-- name: views

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

-- A rank's calls of modules that have a backward, by time: when they ran, and when their backward did. Of those that were
-- recomputed the last column says so. A step that goes on as another one (sl_tape_rest; :step, none: -1) has the calls of that
-- one, :like: what they did before :from was at this step's own time, the rest is later by :shift.
-- Forwards and backwards are numbered on their own. Where more forwards than one more than the backward's number had begun before
-- it, which of them it is of can't be told: the last column has how many had.
WITH call AS (
  SELECT f.rank, f.step, f.module_id, f.call_index, f.tid, f.start_ns, f.end_ns, b.start_ns AS backward_ns, b.end_ns AS backward_end_ns, (
    SELECT count(*) FROM phase o WHERE o.rank = f.rank AND o.step = f.step AND o.module_id = f.module_id AND o.kind = 'forward'
      AND o.start_ns < b.start_ns) AS forwards
  FROM phase f JOIN phase b ON b.rank = f.rank AND b.step = f.step AND b.module_id = f.module_id AND b.kind = 'backward'
    AND b.call_index = f.call_index
  WHERE f.rank = :rank AND f.kind = 'forward' AND f.step IS NOT NULL AND f.end_ns IS NOT NULL AND b.end_ns IS NOT NULL),
own AS (
  SELECT * FROM call WHERE step <> :step
  UNION ALL
  SELECT c.rank, :step, c.module_id, c.call_index, coalesce(f.tid, c.tid), iif(c.start_ns >= :from, c.start_ns + :shift, f.start_ns),
    iif(c.end_ns >= :from, c.end_ns + :shift, f.end_ns), iif(c.backward_ns >= :from, c.backward_ns + :shift, b.start_ns),
    iif(c.backward_end_ns >= :from, c.backward_end_ns + :shift, b.end_ns), c.forwards
  FROM call c
  LEFT JOIN phase f ON f.rank = c.rank AND f.step = :step AND f.module_id = c.module_id AND f.kind = 'forward' AND f.call_index = c.call_index
  LEFT JOIN phase b ON b.rank = c.rank AND b.step = :step AND b.module_id = c.module_id AND b.kind = 'backward' AND b.call_index = c.call_index
  WHERE c.step = :like)
SELECT o.step, m.label, o.start_ns, o.end_ns, o.tid, o.backward_ns, o.backward_end_ns,
  EXISTS (SELECT 1 FROM phase r WHERE r.rank = o.rank AND r.step = o.step AND r.kind = 'recompute' AND r.module_id = o.module_id),
  iif(o.forwards <> o.call_index + 1, o.forwards, 0)
FROM own o JOIN module_name m ON m.id = o.module_id
ORDER BY o.start_ns

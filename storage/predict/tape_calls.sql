-- A rank's calls of modules that have a backward, by time: when they ran, and when their backward did. Of those that were
-- recomputed the last column says so.
SELECT f.step, m.label, f.start_ns, f.end_ns, f.tid, b.start_ns, b.end_ns,
  EXISTS (SELECT 1 FROM phase r WHERE r.rank = f.rank AND r.step = f.step AND r.kind = 'recompute' AND r.module_id = f.module_id)
FROM phase f JOIN phase b ON b.rank = f.rank AND b.step = f.step AND b.module_id = f.module_id AND b.kind = 'backward'
  AND b.call_index = f.call_index
JOIN module_name m ON m.id = f.module_id
WHERE f.rank = :rank AND f.kind = 'forward' AND f.step IS NOT NULL AND f.end_ns IS NOT NULL AND b.end_ns IS NOT NULL
ORDER BY f.start_ns

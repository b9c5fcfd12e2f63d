-- A rank's recomputations of modules by time, each beside the forward that it is of: when and on which threads both ran; when the
-- forward beside it in the same caller ended, and when the next one began, else the caller's own ends (-1: no caller is known);
-- when backward as a whole ended; whether a wrapper says that the module is all that is recomputed; and, where that is not one
-- more than the recomputation's number, how many forwards had begun before it: which of them it is of can't be told.
WITH forward AS (
  SELECT f.*, lag(f.end_ns) OVER beside AS before_ns, lead(f.start_ns) OVER beside AS after_ns
  FROM phase f WHERE f.rank = :rank AND f.kind = 'forward' AND f.step IS NOT NULL
  WINDOW beside AS (PARTITION BY f.parent_id ORDER BY f.start_ns))
SELECT r.step, m.label, f.start_ns, f.end_ns, f.tid, r.start_ns, r.end_ns, r.tid, coalesce(f.before_ns, c.start_ns, -1),
  coalesce(f.after_ns, c.end_ns, -1), coalesce((
    SELECT max(b.end_ns) FROM phase b WHERE b.rank = r.rank AND b.step = r.step AND b.module_id IS NULL AND b.kind = 'backward'
      AND b.start_ns <= r.start_ns AND b.end_ns >= r.end_ns), r.end_ns), r.name LIKE '%.\_checkpoint\_wrapped\_module' ESCAPE '\', (
    SELECT iif(count(*) = r.call_index + 1, 0, count(*)) FROM phase o WHERE o.rank = r.rank AND o.step = r.step AND o.module_id = r.module_id
      AND o.kind = 'forward' AND o.start_ns < r.start_ns)
FROM phase r JOIN module_name m ON m.id = r.module_id
LEFT JOIN forward f ON f.step = r.step AND f.module_id = r.module_id AND f.call_index = r.call_index
LEFT JOIN phase c ON c.id = f.parent_id
WHERE r.rank = :rank AND r.kind = 'recompute' AND r.step IS NOT NULL AND r.end_ns IS NOT NULL
ORDER BY r.start_ns

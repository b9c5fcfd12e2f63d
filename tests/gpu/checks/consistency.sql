-- What must hold in every ledger: its tables tell one story. Each query counts what contradicts; 0 is right.
-- consistency.py asks them of recorded jobs, tests/fuzz/sequences.cc of made-up ones: those marked 'always' also of logs
-- whose events contradict each other.

-- sound: an allocation ends after it began
SELECT count(*) FROM allocation WHERE free_ns < alloc_ns OR complete_ns < free_ns OR (free_ns IS NULL AND complete_ns IS NOT NULL);

-- sound: a block holds what was requested
SELECT count(*) FROM allocation WHERE bytes <= 0 OR requested_bytes > bytes;

-- sound: an allocation lies in a segment of its time
SELECT count(*) FROM allocation a JOIN rank r USING (rank) WHERE r.allocator_backend = 'native' AND NOT EXISTS (
  SELECT 1 FROM segment s WHERE s.rank = a.rank AND s.device = a.device AND a.address >= s.address
  AND a.address < s.address + s.bytes AND s.alloc_ns <= a.alloc_ns AND coalesce(s.free_ns >= a.alloc_ns, 1));

-- sound: segments do not overlap
SELECT count(*) FROM segment a JOIN segment b ON a.rank = b.rank AND a.device = b.device AND a.id < b.id
AND a.address < b.address + b.bytes AND b.address < a.address + a.bytes
AND coalesce(a.alloc_ns < b.free_ns, 1) AND coalesce(b.alloc_ns < a.free_ns, 1);

-- always: the periods of a rank leave no gap
SELECT (SELECT count(*) FROM period p LEFT JOIN period q ON q.rank = p.rank AND q.period = p.period - 1
    WHERE p.period > 0 AND q.end_ns IS NOT p.start_ns OR p.end_ns < p.start_ns)
  + (SELECT count(*) FROM life l WHERE periods <> (SELECT count(*) FROM period p WHERE p.rank = l.rank));

-- always: periods have the kinds and steps of their places
SELECT count(*) FROM period p LEFT JOIN period b ON b.rank = p.rank AND b.period = p.period - 1
LEFT JOIN period n ON n.rank = p.rank AND n.period = p.period + 1
WHERE NOT CASE p.kind WHEN 'setup' THEN (b.kind IS NULL OR b.kind = 'cut') AND n.kind IN ('step', 'cut') AND p.step IS NULL
  WHEN 'whole' THEN (b.kind IS NULL OR b.kind = 'cut') AND n.kind IS NULL AND p.step IS NULL
  WHEN 'step' THEN b.kind IN ('setup', 'between') AND (n.kind IN ('between', 'end', 'cut') OR n.kind IS NULL)
  WHEN 'between' THEN b.kind IN ('step', 'cut') AND n.kind IN ('step', 'cut') AND p.step IS NOT NULL
  WHEN 'end' THEN b.kind IN ('step', 'cut') AND n.kind IS NULL AND p.step IS NOT NULL
  WHEN 'cut' THEN n.kind IS NOT NULL END;

-- always: the life's highest points are the highest of its periods
SELECT count(*) FROM life l WHERE NOT (
  (SELECT max(peak_allocated_bytes) FROM period p WHERE p.rank = l.rank) IS peak_allocated_bytes
  AND (SELECT max(peak_requested_bytes) FROM period p WHERE p.rank = l.rank) IS peak_requested_bytes
  AND (SELECT max(peak_active_bytes) FROM period p WHERE p.rank = l.rank) IS peak_active_bytes
  AND (SELECT max(peak_reserved_bytes) FROM period p WHERE p.rank = l.rank) IS peak_reserved_bytes
  AND (SELECT max(peak_device_bytes) FROM period p WHERE p.rank = l.rank) IS peak_device_bytes
  AND (SELECT peak_allocated_bytes FROM period p WHERE p.rank = l.rank AND p.period = l.peak_period) IS peak_allocated_bytes
  AND (SELECT peak_allocated_bytes FROM period p WHERE p.rank = l.rank AND p.period = l.highest_step_period)
    IS (SELECT max(peak_allocated_bytes) FROM period p WHERE p.rank = l.rank AND p.kind = 'step'));

-- sound: a period's peak is what was alive then
SELECT count(*) FROM period s WHERE same_as IS NULL AND peak_ns IS NOT NULL AND kind <> 'cut'
AND peak_allocated_bytes <> (SELECT coalesce(sum(a.bytes), 0) FROM allocation a JOIN rank USING (rank) WHERE a.rank = s.rank AND a.device = rank.device
           AND a.alloc_ns <= s.peak_ns AND (a.free_ns IS NULL OR a.free_ns > s.peak_ns));

-- always: categories add up to the peak
SELECT count(*) FROM period s WHERE peak_allocated_bytes <> (
  SELECT coalesce(sum(bytes), 0) FROM category_at_peak c WHERE c.rank = s.rank AND c.period = s.period);

-- always: owners have the categories of the peak
SELECT count(*) FROM category_at_peak c JOIN period s USING (rank, period) WHERE c.bytes <> (
  SELECT coalesce(sum(o.bytes), 0) FROM peak_owner o WHERE o.rank = c.rank
  AND o.period = coalesce(s.same_as, s.period) AND o.category = c.category);

-- always: categories add up to each module's peak
SELECT count(*) FROM peak p WHERE allocated_bytes <> (SELECT coalesce(sum(bytes), 0) FROM peak_category c
  WHERE c.rank = p.rank AND c.period = p.period AND c.module_id IS p.module_id AND c.phase = p.phase);

-- sound: no module's peak is above the period's
SELECT count(*) FROM peak p JOIN period s USING (rank, period) WHERE p.allocated_bytes > s.peak_allocated_bytes
OR p.at_ns NOT BETWEEN s.start_ns AND s.end_ns AND s.peak_ns IS NOT NULL OR p.own_bytes > p.own_with_children_bytes;

-- sound: the period's own peak is its highest
SELECT count(*) FROM peak p JOIN period s USING (rank, period) WHERE p.module_id IS NULL AND p.phase = s.kind
AND p.allocated_bytes <> s.peak_allocated_bytes;

-- sound: allocated, active, reserved, device: each holds the one before
SELECT count(*) FROM period WHERE peak_allocated_bytes > peak_active_bytes OR peak_active_bytes > peak_reserved_bytes
OR end_allocated_bytes > peak_allocated_bytes
OR end_active_bytes > peak_active_bytes OR end_reserved_bytes > peak_reserved_bytes;

-- sound: the device holds in a step what PyTorch reserves
SELECT count(*) FROM step WHERE peak_reserved_bytes > peak_device_bytes;

-- sound: a phase begins within the one around it
SELECT count(*) FROM phase c JOIN phase p ON p.id = c.parent_id
WHERE c.start_ns < p.start_ns OR c.start_ns > p.end_ns OR c.end_ns < c.start_ns;

-- sound: phases and allocations lie in their step
SELECT (SELECT count(*) FROM phase p JOIN step s USING (rank, step) WHERE p.start_ns NOT BETWEEN s.start_ns AND s.end_ns)
  + (SELECT count(*) FROM allocation a JOIN period s USING (rank, period) WHERE a.alloc_ns NOT BETWEEN s.start_ns AND s.end_ns
     AND a.decided_by <> 'restored');

-- always: phases and allocations that are referred to are there
SELECT
  (SELECT count(*) FROM allocation t WHERE phase_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM phase o WHERE o.id = t.phase_id)) +
  (SELECT count(*) FROM allocation t WHERE free_phase_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM phase o WHERE o.id = t.free_phase_id)) +
  (SELECT count(*) FROM segment t WHERE phase_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM phase o WHERE o.id = t.phase_id)) +
  (SELECT count(*) FROM host_segment t WHERE phase_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM phase o WHERE o.id = t.phase_id)) +
  (SELECT count(*) FROM phase t WHERE parent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM phase o WHERE o.id = t.parent_id)) +
  (SELECT count(*) FROM collective t WHERE phase_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM phase o WHERE o.id = t.phase_id)) +
  (SELECT count(*) FROM collective t WHERE send_allocation_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM allocation o WHERE o.id = t.send_allocation_id)) +
  (SELECT count(*) FROM collective t WHERE receive_allocation_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM allocation o WHERE o.id = t.receive_allocation_id));

-- sound: modules that are referred to are there
SELECT
  (SELECT count(*) FROM allocation t WHERE module_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM module o WHERE o.id = t.module_id)) +
  (SELECT count(*) FROM phase t WHERE module_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM module o WHERE o.id = t.module_id)) +
  (SELECT count(*) FROM module t WHERE parent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM module o WHERE o.id = t.parent_id));

-- always: a phase comes after the one around it
SELECT count(*) FROM phase c JOIN phase p ON p.id = c.parent_id WHERE p.id >= c.id OR p.rank <> c.rank;

-- always: a period that repeats another one repeats a kept one of its kind before it
SELECT count(*) FROM period s WHERE same_as IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM period k WHERE k.rank = s.rank AND k.period = s.same_as AND k.same_as IS NULL AND k.period < s.period
  AND k.kind = s.kind);

-- always: rows of periods are of those that were kept
SELECT
  (SELECT count(*) FROM peak t WHERE NOT EXISTS (
    SELECT 1 FROM period s WHERE s.rank = t.rank AND s.period = t.period AND s.same_as IS NULL)) +
  (SELECT count(*) FROM peak_category t WHERE NOT EXISTS (
    SELECT 1 FROM period s WHERE s.rank = t.rank AND s.period = t.period AND s.same_as IS NULL)) +
  (SELECT count(*) FROM peak_owner t WHERE NOT EXISTS (
    SELECT 1 FROM period s WHERE s.rank = t.rank AND s.period = t.period AND s.same_as IS NULL)) +
  (SELECT count(*) FROM snapshot t WHERE NOT EXISTS (
    SELECT 1 FROM step s WHERE s.rank = t.rank AND s.step = t.step AND s.same_as IS NULL));

-- sound: modules form trees
SELECT count(*) FROM module c JOIN module p ON p.id = c.parent_id
WHERE c.depth <> p.depth + 1 OR c.root_id <> p.root_id OR c.param_bytes > p.param_bytes;

-- sound: a collective has a time, or a reason why not
SELECT count(*) FROM collective WHERE (start_ns IS NULL) = (untimed IS NULL) OR end_ns < start_ns
OR exposed_ns > end_ns - start_ns OR start_ns < enqueue_ns - 100000;

-- sound: ranks agree on their collectives
SELECT count(*) FROM collective a JOIN collective b ON a.comm = b.comm AND a.seq = b.seq AND a.rank < b.rank
WHERE a.peer IS NULL AND b.peer IS NULL AND (a.operation <> b.operation OR a.bytes <> b.bytes);

-- sound: calls that share a kernel know how many
SELECT count(*) FROM (SELECT count(*) AS calls, max(kernel_calls) AS told FROM collective WHERE start_ns IS NOT NULL
  GROUP BY rank, stream, start_ns HAVING calls <> told);

-- sound: the device's owners add up to what is used
SELECT count(*) FROM (SELECT sum(CASE WHEN owner = 'used' THEN -bytes ELSE bytes END) AS difference
  FROM device_balance GROUP BY rank, at_ns HAVING difference <> 0);

-- always: a rank's steps are counted
SELECT (SELECT count(*) FROM (SELECT rank, count(*), count(*) - count(same_as), sum(checked IS 1), sum(checked IS 0),
    min(step), max(step) FROM step GROUP BY rank EXCEPT SELECT * FROM rank_steps))
  + (SELECT count(*) FROM rank_steps WHERE rank NOT IN (SELECT rank FROM step));

-- always: a rank's totals of collectives add up
SELECT (SELECT count(*) FROM (SELECT rank, comm, operation, sum(calls), sum(bytes), sum(timed), sum(duration_ns)
    FROM collective_total GROUP BY rank, comm, operation EXCEPT SELECT * FROM rank_collectives))
  + abs((SELECT count(*) FROM rank_collectives)
    - (SELECT count(*) FROM (SELECT DISTINCT rank, comm, operation FROM collective_total)));

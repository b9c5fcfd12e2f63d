-- name: peaks_categories
-- Categories that only these periods have.
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT DISTINCT b.category FROM chosen c CROSS JOIN peak_category b ON b.rank = c.rank AND b.period = c.rows_of
ORDER BY b.category

-- name: peaks_by_phase
-- Every module and phase of the chosen period, with what the device held at that moment by category: a row each of these.
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT p.rowid, p.rank, c.step, iif(p.module_id IS NULL, iif(:text, '(all)', NULL),
    iif(:text, (SELECT label FROM module_name n WHERE n.id = m.id), m.fqn)), p.phase, p.allocated_bytes, p.own_bytes, c.period,
  iif(:text AND c.step IS NOT NULL, NULL, c.place), p.module_id, b.category, b.bytes
FROM chosen c CROSS JOIN peak p ON p.rank = c.rank AND p.period = c.rows_of
LEFT JOIN module m ON m.id = p.module_id
LEFT JOIN peak_category b ON b.rank = p.rank AND b.period = p.period AND b.module_id IS p.module_id AND b.phase = p.phase
WHERE :depth IS NULL OR p.module_id IS NULL OR m.depth <= :depth
ORDER BY p.rank, p.module_id, CASE p.phase WHEN c.kind THEN 0 WHEN 'forward' THEN 1 WHEN 'recompute' THEN 2
  WHEN 'backward' THEN 3 ELSE 4 END, p.rowid

-- name: peaks_by_module
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT p.rank, c.step, iif(:text, (SELECT label FROM module_name n WHERE n.id = m.id), m.fqn), m.class, max(p.allocated_bytes)
  FILTER (WHERE p.phase = 'forward'), max(p.allocated_bytes) FILTER (WHERE p.phase = 'recompute'),
  max(p.allocated_bytes) FILTER (WHERE p.phase = 'backward'), max(p.own_bytes), max(p.own_with_children_bytes),
  m.param_bytes, m.buffer_bytes, max(p.allocated_bytes) FILTER (WHERE p.phase = 'eval'), c.period,
  iif(:text AND c.step IS NOT NULL, NULL, c.place), m.id
FROM chosen AS c CROSS JOIN peak AS p ON p.rank = c.rank AND p.period = c.rows_of JOIN module AS m ON m.id = p.module_id
WHERE :depth IS NULL OR m.depth <= :depth GROUP BY p.rank, c.period, m.id ORDER BY p.rank, m.id

-- name: peaks_by_category
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT c.rank, c.step, b.category, b.bytes, iif(c.peak_allocated_bytes > 0, b.bytes * 1.0 / c.peak_allocated_bytes, 0),
  c.period, iif(:text AND c.step IS NOT NULL, NULL, c.place)
FROM chosen AS c CROSS JOIN peak_category AS b ON b.rank = c.rank AND b.period = c.rows_of AND b.module_id IS NULL AND
  b.phase = c.kind
ORDER BY c.rank, b.bytes DESC, b.category

-- name: peaks_by_step
SELECT *
FROM (SELECT rank, step, peak_allocated_bytes, peak_allocated_bytes - lag(peak_allocated_bytes) OVER (PARTITION BY rank
  ORDER BY step), peak_active_bytes, peak_reserved_bytes, peak_requested_bytes, peak_device_bytes, end_allocated_bytes,
  end_ns - start_ns, same_as, checked, period, 'step ' || step FROM step)
WHERE (:rank IS NULL OR rank_in(rank, :rank)) AND (:step IS NULL OR step = :step) ORDER BY rank, step

-- name: peaks_by_rank
WITH chosen AS (SELECT * FROM shown_period WHERE asked_step IS :step AND asked_period IS :period AND (:rank IS NULL OR rank_in(rank, :rank)))
SELECT c.rank, k.host, k.device, c.step, c.peak_allocated_bytes, c.peak_active_bytes, c.peak_reserved_bytes,
  c.peak_device_bytes, k.device_bytes, iif(:text, c.whereabouts, c.at_data), c.period, c.place
FROM chosen AS c LEFT JOIN rank AS k ON k.rank = c.rank ORDER BY c.rank

-- name: peaks_highest_rank
-- The first of these ranks, and how many there are.
SELECT rank, count(*) OVER () FROM life WHERE peak_allocated_bytes IS NOT NULL AND (:rank IS NULL OR rank_in(rank, :rank))
ORDER BY peak_allocated_bytes DESC, rank LIMIT 1

-- name: peaks_has_period
SELECT EXISTS(SELECT 1 FROM period_peak WHERE period = :period AND (:rank IS NULL OR rank_in(rank, :rank))), max(period) FROM period
WHERE (:rank IS NULL OR rank_in(rank, :rank))

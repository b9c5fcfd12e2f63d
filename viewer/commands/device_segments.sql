-- name: segments_at_oom
SELECT o.rank, o.device, o.at_ns, o.step, o.step FROM oom AS o
WHERE (:rank IS NULL OR rank_in(o.rank, :rank)) AND o.reserved_bytes IS NOT NULL
ORDER BY EXISTS (SELECT 1 FROM step AS s WHERE s.rank = o.rank AND s.start_ns > o.at_ns), o.at_ns LIMIT 1

-- name: segments_at_step
SELECT s.rank, r.device, (
    SELECT own.end_ns FROM step AS own WHERE own.rank = s.rank AND own.step = coalesce(s.same_as, s.step)),
  coalesce(s.same_as, s.step), s.step FROM step AS s JOIN rank AS r ON r.rank = s.rank
WHERE s.step = :step AND (:rank IS NULL OR rank_in(s.rank, :rank)) AND s.end_reserved_bytes IS NOT NULL
ORDER BY s.end_reserved_bytes DESC, s.rank LIMIT 1

-- name: segments_at_last
-- Without steps, of the one period that there is.
SELECT * FROM (SELECT s.rank, r.device, (
    SELECT own.end_ns FROM step AS own WHERE own.rank = s.rank AND own.step = coalesce(s.same_as, s.step)),
  coalesce(s.same_as, s.step), s.step FROM step AS s JOIN rank AS r ON r.rank = s.rank
WHERE (:rank IS NULL OR rank_in(s.rank, :rank)) AND s.end_reserved_bytes IS NOT NULL
ORDER BY s.step DESC, s.end_reserved_bytes DESC, s.rank LIMIT 1)
UNION ALL
SELECT * FROM (SELECT p.rank, r.device, p.end_ns, NULL, NULL FROM period AS p JOIN rank AS r ON r.rank = p.rank
  WHERE p.kind = 'whole' AND (:rank IS NULL OR rank_in(p.rank, :rank)) AND p.end_reserved_bytes IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM step) ORDER BY p.end_reserved_bytes DESC, p.rank LIMIT 1)

-- name: segments_at_peak
SELECT * FROM (SELECT s.rank, r.device, (
    SELECT own.peak_ns FROM step AS own WHERE own.rank = s.rank AND own.step = coalesce(s.same_as, s.step)),
  coalesce(s.same_as, s.step), s.step FROM step AS s JOIN rank AS r ON r.rank = s.rank
WHERE (:rank IS NULL OR rank_in(s.rank, :rank)) AND s.peak_reserved_bytes IS NOT NULL
ORDER BY s.peak_allocated_bytes DESC, s.same_as IS NOT NULL, s.rank, s.step LIMIT 1)
UNION ALL
SELECT * FROM (SELECT p.rank, r.device, p.peak_ns, NULL, NULL FROM period AS p JOIN rank AS r ON r.rank = p.rank
  WHERE p.kind = 'whole' AND (:rank IS NULL OR rank_in(p.rank, :rank)) AND p.peak_reserved_bytes IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM step) ORDER BY p.peak_allocated_bytes DESC, p.rank LIMIT 1)

-- name: segments_known
SELECT EXISTS(SELECT 1 FROM step WHERE end_reserved_bytes IS NOT NULL)

-- name: segments_pools
SELECT count(*) FROM rank WHERE allocator_backend IN ('cudaMallocAsync', 'uncached')

-- name: segments_keeper
SELECT a.id, a.bytes, a.category || coalesce('/' || a.detail, ''), a.name, m.name,
  (SELECT label FROM range_label WHERE id = a.phase_id), a.step FROM allocation AS a
LEFT JOIN module_name AS m ON m.id = a.module_id WHERE a.id = :id

-- name: segments_steps
SELECT s.step, s.end_reserved_bytes, s.end_allocated_bytes, s.end_reserved_bytes - s.end_active_bytes,
  s.end_largest_free_bytes, own.end_ns, count(*) OVER () FROM step AS s
JOIN step AS own ON own.rank = s.rank AND own.step = coalesce(s.same_as, s.step)
WHERE s.rank = :rank AND s.end_reserved_bytes IS NOT NULL ORDER BY s.step

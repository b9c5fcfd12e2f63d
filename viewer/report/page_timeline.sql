-- name: timeline_span
SELECT start_ns, end_ns FROM rank WHERE rank = :rank

-- name: timeline_owners
SELECT DISTINCT coalesce(a.module_id, -1), a.category, coalesce(a.detail, '') FROM allocation AS a
JOIN rank AS k ON k.rank = a.rank WHERE a.rank = :rank AND a.device IS coalesce(k.device, 0)

-- name: timeline_events
SELECT coalesce(a.module_id, -1), a.category, coalesce(a.detail, ''), a.bytes, a.alloc_ns, a.free_ns
FROM allocation AS a JOIN rank AS k ON k.rank = a.rank WHERE a.rank = :rank AND a.device IS coalesce(k.device, 0)

-- name: timeline_windows
SELECT step, coalesce(same_as, -1), start_ns, end_ns, coalesce(peak_ns, end_ns), coalesce(peak_allocated_bytes, -1)
FROM step WHERE rank = :rank ORDER BY start_ns

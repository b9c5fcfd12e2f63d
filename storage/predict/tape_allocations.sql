-- Every allocation that is stored of a rank's own device, by time.
SELECT a.id, a.address, a.bytes, a.requested_bytes, a.stream, coalesce(a.pool, ''), a.category, coalesce(a.alloc_event, 0),
  coalesce(a.free_event, 0), coalesce(a.complete_event, 0), coalesce(p.kind, ''), coalesce(a.module_id, 0), coalesce(a.name, ''),
  coalesce(a.detail, '')
FROM allocation a LEFT JOIN phase p ON p.id = a.phase_id WHERE a.rank = :rank AND a.device = :device ORDER BY a.id

-- Every allocation that is stored of a rank's own device, by time.
SELECT a.id, a.address, a.bytes, a.requested_bytes, a.stream, coalesce(a.pool, ''), a.category, coalesce(a.alloc_event, 0),
  coalesce(a.free_event, 0), coalesce(a.complete_event, 0), coalesce(p.kind, ''), coalesce(a.module_id, 0),
  a.alloc_ns, coalesce(a.free_ns, 0), coalesce(a.complete_ns, 0), CASE WHEN a.category IN ('optstate', 'param', 'sharded_param', 'gradient') THEN coalesce(a.name, '') ELSE '' END,
  CASE 'optimizer_step' WHEN p.kind THEN p.id WHEN o.kind THEN o.id WHEN q.kind THEN q.id ELSE 0 END,
  coalesce(a.step, -1), a.tid
FROM allocation a LEFT JOIN phase p ON p.id = a.phase_id LEFT JOIN phase o ON o.id = p.parent_id
LEFT JOIN phase q ON q.id = o.parent_id WHERE a.rank = :rank AND a.device = :device ORDER BY a.id

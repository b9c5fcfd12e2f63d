-- Where a rank's units of FSDP2 come to the end of forward (0), are prefetched for backward (1) and begin it (2), by time; of
-- those alone that are not the root.
SELECT p.step, p.module_id, CASE WHEN p.name LIKE 'FSDP::post_forward%' THEN 0 WHEN p.kind = 'prefetch' THEN 1 ELSE 2 END,
  p.start_ns, coalesce(p.end_ns, p.start_ns)
FROM phase p
WHERE p.rank = :rank AND p.step IS NOT NULL AND p.module_id IS NOT NULL
  AND (p.name LIKE 'FSDP::post_forward%' OR p.name LIKE 'FSDP::backward\_prefetch%' ESCAPE '\' OR p.name LIKE 'FSDP::pre\_backward%' ESCAPE '\')
  AND NOT EXISTS (SELECT 1 FROM phase r WHERE r.rank = p.rank AND r.module_id = p.module_id AND r.name LIKE 'FSDP::root%')
ORDER BY p.start_ns

-- What a rank's allocator was, and whether its events are all there.
SELECT coalesce(r.device, -1), coalesce(r.allocator_config, ''), coalesce(r.device_bytes, 0), coalesce(r.allocator_backend, 'native'),
  coalesce(r.restored_allocations, 0), EXISTS (SELECT 1 FROM period p WHERE p.rank = r.rank AND p.kind = 'cut'),
  coalesce(r.world_size, 1)
FROM rank r WHERE r.rank = :rank

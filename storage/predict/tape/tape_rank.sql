-- What a rank's allocator was, whether its events are all there, and whether torch.compile made operators of autograd's.
SELECT coalesce(r.device, -1), coalesce(r.allocator_config, ''), coalesce(r.device_bytes, 0), coalesce(r.allocator_backend, 'native'),
  coalesce(r.restored_allocations, 0), EXISTS (SELECT 1 FROM period p WHERE p.rank = r.rank AND p.kind = 'cut'),
  coalesce(r.world_size, 1),
  EXISTS (SELECT 1 FROM site s WHERE s.rank = r.rank AND s.operator_name GLOB 'CompiledFunction*')
FROM rank r WHERE r.rank = :rank

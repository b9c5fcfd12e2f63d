-- name: mcp_run
-- What is to be known of a run before anything else, as one JSON text: first whether it is whole.
WITH highest AS (SELECT * FROM life_peak WHERE peak_allocated_bytes IS NOT NULL ORDER BY peak_allocated_bytes DESC, rank LIMIT 1)
SELECT json_object(
  'events_lost', (SELECT coalesce(sum(events_lost), 0) FROM rank),
  'gaps', (SELECT json_group_array(json_object('rank', rank, 'source', source, 'lost', lost, 'reason', reason))
    FROM (SELECT * FROM gap ORDER BY rank LIMIT 8)),
  'gap_count', (SELECT count(*) FROM gap),
  'missing_ranks', (SELECT rank_ranges(first, last) FROM missing_ranks),
  'steps_differed', (SELECT coalesce(sum(steps_differed), 0) FROM rank_steps),
  'steps_agreed', (SELECT coalesce(sum(steps_agreed), 0) FROM rank_steps),
  'unattributed_bytes', (SELECT max(unattributed_bytes) FROM life_peak),
  'ended_otherwise_than_in_order', (SELECT rank_ranges(rank) FROM rank WHERE NOT clean_exit),
  'out_of_memory_errors', (SELECT count(*) FROM oom),
  'rehearsal', json(iif(EXISTS (SELECT 1 FROM rank WHERE rehearsal IS NOT NULL), 'true', 'false')),
  'ranks', (SELECT rank_ranges(rank) FROM rank),
  'world_size', (SELECT max(world_size) FROM rank),
  'steps', (SELECT json_object('first', min(step), 'last', max(step)) FROM step),
  'highest_peak', (SELECT json_object('rank', rank, 'place', place, 'step', step, 'phase', phase, 'module', module,
    'allocated_bytes', peak_allocated_bytes, 'reserved_bytes', peak_reserved_bytes, 'device_used_bytes', peak_device_bytes)
    FROM highest),
  'categories_at_highest_peak', (SELECT json_group_object(category, bytes)
    FROM (SELECT c.category, c.bytes FROM highest h JOIN category_at_peak c ON c.rank = h.rank AND c.period = h.period
      ORDER BY c.bytes DESC)),
  'recorded_with', (SELECT json_object('torch', max(torch_version), 'nccl', max(nccl_version), 'gpu', max(device_name),
    'device_bytes', max(device_bytes), 'allocator_config', max(allocator_config)) FROM rank))

-- name: mcp_tables
SELECT name, type, coalesce(sql, '') FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'
ORDER BY type, name

-- name: mcp_table
SELECT name, type, coalesce(sql, '') FROM sqlite_schema WHERE type IN ('table', 'view') AND name = :name

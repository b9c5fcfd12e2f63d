-- name: advise_goal_refused
-- A refused request: what was asked for, what there was then, and whether it ended the rank.
SELECT o.requested_bytes, o.free_bytes, o.allocated_bytes, o.reserved_bytes, o.largest_free_bytes, o.source, coalesce(o.step, -1),
  NOT EXISTS (SELECT 1 FROM step s WHERE s.rank = o.rank AND s.start_ns > o.at_ns), coalesce(r.allocator_config, '')
FROM oom o LEFT JOIN rank r ON r.rank = o.rank WHERE o.rank = :rank AND o.at_ns = :at

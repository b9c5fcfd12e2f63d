-- name: map_private_blocks
SELECT address, alloc_ns, pool FROM allocation
WHERE rank = :rank AND device = :device AND pool IS NOT NULL AND alloc_ns <= :last ORDER BY address

-- name: map_segments
SELECT alloc_ns, free_ns, address, bytes, coalesce(stream, 0), api LIKE '%map%' FROM segment
WHERE rank = :rank AND device = :device AND owner = 'pytorch' AND bytes > 0 AND alloc_ns <= :last ORDER BY address

-- name: map_blocks
SELECT alloc_ns, complete_ns, id, address, bytes, category, free_ns, pool FROM allocation
WHERE rank = :rank AND device = :device AND bytes > 0 AND alloc_ns <= :last

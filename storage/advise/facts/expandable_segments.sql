-- name: advise_fact_expandable_segments
SELECT reserved_bytes - active_bytes, 1, '' FROM oom JOIN rank USING (rank)
WHERE rank = :rank AND at_ns = :at AND coalesce(allocator_config, '') NOT LIKE '%expandable_segments:True%'

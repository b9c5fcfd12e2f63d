-- Of a rank's allocations that operators were seen to use, by id: when the last one ended, and the last one before its step's backward.
SELECT u.allocation_id, u.last_use_ns, coalesce(u.forward_use_ns, 0) FROM allocation_use u
WHERE u.rank = :rank AND u.last_use_ns IS NOT NULL ORDER BY u.allocation_id

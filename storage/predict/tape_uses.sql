-- Of a rank's allocations that operators were seen to use: when the last one ended, by the allocations' own order.
SELECT u.allocation_id, u.last_use_ns FROM allocation_use u WHERE u.rank = :rank AND u.last_use_ns IS NOT NULL ORDER BY u.allocation_id

-- name: page_clocks
SELECT r.rank, :first + coalesce((SELECT offset_ns FROM host_clock AS h WHERE h.host IS r.host), 0) FROM rank AS r
ORDER BY r.rank

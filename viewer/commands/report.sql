-- name: report_rank_count
SELECT count(*) FROM rank

-- name: report_first_instant
SELECT min(r.start_ns - coalesce((SELECT offset_ns FROM host_clock AS h WHERE h.host IS r.host), 0)) FROM rank AS r

-- name: report_rows
SELECT (SELECT count(*) FROM allocation) + (SELECT count(*) FROM peak_category)

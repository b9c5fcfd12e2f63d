-- name: report_rank_count
SELECT count(*) FROM rank

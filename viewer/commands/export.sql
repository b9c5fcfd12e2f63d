-- name: export_rows
SELECT (SELECT count(*) FROM phase) + (SELECT count(*) FROM mark) + 2 * (SELECT count(*) FROM allocation) + (SELECT count(*) FROM kernel) +
  (SELECT count(*) FROM memcpy) + (SELECT count(*) FROM memset) + 2 * (SELECT count(*) FROM segment) +
  (SELECT count(*) FROM collective)

-- name: export_steps
SELECT count(*) FROM step

-- name: export_steps_left_out
SELECT count(same_as) FROM step

-- name: rehearse_ranks
SELECT count(*) FROM rank WHERE rehearsal IS NOT NULL

-- name: rehearse_need
-- Each rehearsed rank on a device of its own: see the view.
SELECT rank, device_bytes, real_device_bytes, coalesce(reserved_bytes, 0), other_bytes, refused
FROM rehearsal_need WHERE reserved_bytes IS NOT NULL ORDER BY rank

-- name: rehearse_nccl
-- What NCCL would take, by rank, as measured_version does. measured: it is the rank's.
SELECT r.rank, r.nccl_version, r.nccl_version = n.measured_version AS measured, count(n.rank), coalesce(sum(n.estimated_bytes), 0),
  n.measured_version
FROM rank r LEFT JOIN nccl_estimate n ON n.rank = r.rank AND n.group_number IS NOT NULL
WHERE r.rehearsal IS NOT NULL GROUP BY r.rank ORDER BY r.rank

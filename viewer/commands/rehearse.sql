-- name: rehearse_ranks
SELECT count(*) FROM rank WHERE rehearsal IS NOT NULL

-- name: rehearse_need
-- Each rehearsed rank on a device of its own: see the view.
SELECT rank, device_bytes, real_device_bytes, coalesce(reserved_bytes, 0), other_bytes, refused
FROM rehearsal_need WHERE reserved_bytes IS NOT NULL ORDER BY rank

-- name: rehearse_nccl_version
SELECT nccl_version FROM rank WHERE nccl_version IS NOT NULL ORDER BY rank LIMIT 1

-- name: kineto_group
SELECT rank FROM communicator WHERE comm = :comm ORDER BY coalesce(comm_rank, rank), rank

-- name: kineto_calls
SELECT c.id, c.tid, c.enqueue_ns, c.operation, c.bytes, c.comm, c.seq, c.datatype, (SELECT nranks FROM communicator AS m
  WHERE m.rank = c.rank AND m.comm = c.comm)
FROM collective AS c WHERE c.rank = :rank ORDER BY c.enqueue_ns

-- name: kineto_copies
SELECT device, stream, CASE kind WHEN 1 THEN 'Memcpy HtoD' WHEN 2 THEN 'Memcpy DtoH' WHEN 8 THEN 'Memcpy DtoD' WHEN 10
  THEN 'Memcpy PtoP' ELSE 'Memcpy' END, bytes, correlation, start_ns, end_ns, 'gpu_memcpy' FROM memcpy
WHERE rank = :rank
UNION ALL
SELECT device, stream, 'Memset (Device)', bytes, correlation, start_ns, end_ns, 'gpu_memset' FROM memset
WHERE rank = :rank

-- name: kineto_streams
SELECT device, stream FROM kernel WHERE rank = :rank
UNION
SELECT device, stream FROM memcpy WHERE rank = :rank
UNION
SELECT device, stream FROM memset WHERE rank = :rank

-- name: kineto_communicators
SELECT comm, coalesce(name, ''), nranks FROM communicator WHERE rank = :rank

-- name: kineto_devices
-- The GPUs of the rank's host by CUDA's number, without a gap. Of a number that stands for several GPUs, as where each rank
-- sees but its own, only the rank's own is known.
WITH RECURSIVE mine AS (SELECT * FROM rank WHERE rank = :rank),
named AS (
  SELECT r.device, min(r.device_name) AS name, min(r.device_bytes) AS bytes FROM rank r JOIN mine m ON r.host IS m.host
  WHERE r.rank = m.rank OR r.device IS NOT m.device GROUP BY r.device HAVING count(DISTINCT r.device_uuid) <= 1),
place(device, last) AS (
  SELECT 0, max(coalesce((SELECT max(device) FROM named), 0),
    coalesce((SELECT max(device) FROM allocation WHERE rank = :rank), 0))
  UNION ALL
  SELECT device + 1, last FROM place WHERE device < last)
SELECT p.device, n.name, n.bytes FROM place p LEFT JOIN named n ON n.device = p.device ORDER BY p.device

-- name: kineto_site
SELECT frame_id, operator_name, iif(frame_id IS NULL OR stack_of = 'caller', NULL, stack_of) FROM site WHERE id = :site

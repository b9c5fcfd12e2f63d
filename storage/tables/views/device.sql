-- What the device holds beside tensors, and what it would have to hold.

-- name: views

-- The owners of a device's memory in words, in the order in which people ask for them. Others are libraries, by their file's
-- name; they stand behind cuDNN, at 11.5.
CREATE VIEW device_owner_meaning AS
SELECT column1 AS owner, column2 AS meaning, row_number() OVER () AS place FROM (VALUES
  ('used', 'all that is in use, as the driver says'),
  ('allocated', 'tensors: memory_allocated() of PyTorch without the workspaces'),
  ('cublas_workspace', 'workspaces that PyTorch made for cuBLAS, also in memory_allocated()'),
  ('pending', 'freed by PyTorch, but another stream may still use it'),
  ('cached', 'free in PyTorch''s cache, part of memory_reserved()'),
  ('private_pools', 'CUDA graphs'' and MemPools'' part of memory_reserved(), used or free'),
  ('pytorch', 'PyTorch''s; its allocator was not recorded'),
  ('pytorch_other', 'PyTorch''s, not in memory_reserved() as recorded'),
  ('nccl', 'NCCL''s buffers'),
  ('cublas', 'workspaces that cuBLAS made itself'),
  ('cudnn', 'cuDNN''s own'),
  ('driver_pools', 'kept by the driver''s pools of cudaMallocAsync after a free, at most'),
  ('cuda_context', 'the CUDA context, before any GPU code; about 12 MiB of it for CUPTI'),
  ('gpu_code', 'kernels: what came while GPU code was loaded'),
  ('context_and_code', 'the CUDA context and kernels, first measured together'),
  ('other_processes', 'other processes on this GPU, as NVML says'),
  ('unexplained', 'what nobody owns'));

-- At every sample of the device: who holds what. `used` is what the driver says, the sum of all others; `unexplained` is
-- there also when it is 0. The owners are explained in docs/device.md.
CREATE VIEW device_balance AS
SELECT rank, device, at_ns, owner, bytes FROM device_owner WHERE owner <> 'unexplained'
UNION ALL
SELECT rank, device, at_ns, 'used', used_bytes FROM device_sample
UNION ALL
SELECT d.rank, d.device, d.at_ns, 'unexplained', coalesce((SELECT sum(bytes) FROM device_owner o WHERE o.rank = d.rank
  AND o.device = d.device AND o.at_ns = d.at_ns AND o.owner = 'unexplained'), 0)
FROM device_sample d;

-- What NCCL takes of the device for a communicator whose ranks are on one host with NVLink, by what it is used for, as measured with
-- two H200 and the version of NCCL that measured_version says (docs/nccl.md): 24 channels of collectives and 32 of sends and receives.
-- An estimate elsewhere. group_number: of a rehearsed rank (rehearsed_group), which has no communicator; comm and recorded_bytes: of a
-- real one. rings, sends, receives: 1 where there was such a call. Communicators of one rank are not in it.
CREATE VIEW nccl_estimate AS
SELECT rank, group_number, comm, nranks, rings, sends, receives, recorded_bytes,
  1048576 * (4 + 32 * 6 + rings * 24 * (2 + 10) + sends * 32 * 2 + receives * 32 * 10) AS estimated_bytes,
  '2.28.9' AS measured_version
FROM (
  SELECT rank, number AS group_number, NULL AS comm, nranks, rings, sends, receives, NULL AS recorded_bytes FROM rehearsed_group
  UNION ALL
  SELECT c.rank, NULL, c.comm, c.nranks,
    max(coalesce(k.operation IN ('AllGather', 'AllReduce', 'Broadcast', 'Reduce', 'ReduceScatter'), 0)),
    max(coalesce(k.operation IN ('AlltoAll', 'Send'), 0)), max(coalesce(k.operation IN ('AlltoAll', 'Recv'), 0)), c.device_bytes
  FROM communicator c LEFT JOIN collective k ON k.rank = c.rank AND k.comm = c.comm
  WHERE c.nranks > 1 AND c.device_bytes > 0 GROUP BY c.rank, c.comm) u
WHERE nranks > 1;

-- What each rehearsed rank (docs/rehearse.md) takes of a device of its own: what PyTorch reserved at most, and the most that was
-- in use beside that in one sample, without other processes and NCCL, which a rehearsal does not have. device_bytes: what the
-- device was to have, and what the real one has. refused: requests that ended in an out-of-memory error.
CREATE VIEW rehearsal_need AS
SELECT r.rank, r.world_size, coalesce(r.rehearsal_bytes, r.device_bytes) AS device_bytes, r.device_bytes AS real_device_bytes,
  (SELECT max(p.peak_reserved_bytes) FROM period p WHERE p.rank = r.rank) AS reserved_bytes,
  (SELECT max(s.bytes) FROM (
    SELECT sum(o.bytes) AS bytes FROM device_owner o WHERE o.rank = r.rank AND o.device = coalesce(r.device, o.device)
      AND o.owner NOT IN ('allocated', 'cublas_workspace', 'cached', 'other_processes', 'nccl', 'unexplained')
    GROUP BY o.at_ns) s) AS other_bytes,
  (SELECT count(*) FROM oom m WHERE m.rank = r.rank) AS refused
FROM rank r WHERE r.rehearsal IS NOT NULL;

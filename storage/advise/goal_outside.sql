-- name: advise_goal_outside
-- The most that this process had of its device beside its allocator: CUDA's context, NCCL's buffers, other libraries'. Others'
-- memory and what nobody owns is no part of what a job needs. NULL: no sample tells.
SELECT max(bytes) FROM (
  SELECT sum(o.bytes) AS bytes FROM device_owner o JOIN rank r ON r.rank = o.rank AND r.device = o.device
  WHERE o.rank = :rank AND o.owner NOT IN ('allocated', 'cached', 'cublas_workspace', 'other_processes', 'unexplained', 'used', 'total', 'free')
  GROUP BY o.at_ns)

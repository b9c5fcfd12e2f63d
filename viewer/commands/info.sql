-- name: info_has_steps
SELECT EXISTS(SELECT 1 FROM step)

-- name: info_has_modules
SELECT EXISTS(SELECT 1 FROM module)

-- name: info_has_allocations
SELECT EXISTS(SELECT 1 FROM allocation)

-- name: info_has_checks
SELECT EXISTS(SELECT 1 FROM step WHERE checked IS NOT NULL) OR EXISTS(
  SELECT 1 FROM period p JOIN rank r ON r.rank = p.rank WHERE p.checked IS NOT NULL AND r.fidelity = 'snapshot')

-- name: info_has_driver_memory
SELECT EXISTS(SELECT 1 FROM segment WHERE owner <> 'pytorch')

-- name: info_has_samples
SELECT EXISTS(SELECT 1 FROM device_sample)

-- name: info_has_collectives
SELECT EXISTS(SELECT 1 FROM collective)

-- name: info_has_collective_times
SELECT NOT EXISTS(SELECT 1 FROM collective) OR EXISTS(SELECT 1 FROM collective WHERE joined_by IS NOT NULL)

-- name: info_has_algorithms
SELECT NOT EXISTS(SELECT 1 FROM collective) OR EXISTS(SELECT 1 FROM collective WHERE algorithm IS NOT NULL)

-- name: info_has_kernels
SELECT EXISTS(SELECT 1 FROM kernel)

-- name: info_why
-- What the record itself says of why a source recorded nothing: NCCL too old for it, or the source's own reason, where it was on
-- in no rank.
SELECT 'a memory snapshot of PyTorch does not tell it' WHERE EXISTS(SELECT 1 FROM rank WHERE fidelity = 'snapshot')
UNION ALL
SELECT 'NCCL ' || max(nccl_version) || ' has no profiler plugin: it came with 2.23' FROM rank
WHERE :source = 'nccl_profiler' AND nccl_version LIKE '2.%' AND CAST(substr(nccl_version, 3) AS INTEGER) < 23
HAVING count(*) > 0
UNION ALL
SELECT group_concat(DISTINCT reason) FROM source
WHERE source = :source AND state <> 'on' AND reason <> ''
  AND NOT EXISTS (SELECT 1 FROM source o WHERE o.source = :source AND o.state = 'on')
HAVING count(*) > 0
LIMIT 1

-- name: info_attempts
-- Where there are several; the one that is shown is marked.
SELECT attempt, iif(is_this, 'shown', NULL), name, began_ns, ranks, world_size, recorded, told_by FROM attempt
WHERE (SELECT count(*) FROM attempt) > 1 ORDER BY attempt

-- name: info_has_all_ranks
SELECT NOT EXISTS(SELECT 1 FROM missing_ranks)

-- name: info_ranks
SELECT r.rank, host, pid, device, device_name, device_uuid, device_bytes, r.start_ns, r.end_ns, r.end_ns - r.start_ns,
  coalesce(steps, 0), coalesce(steps_in_full, 0), events, events_lost, clean_exit, (SELECT ended FROM rank_ending AS e
  WHERE e.rank = r.rank), coalesce(steps_agreed, 0), coalesce(steps_differed, 0), CASE WHEN fidelity = 'snapshot' THEN (SELECT CASE
      min(checked) WHEN 1 THEN 'its end is exact' WHEN 0 THEN 'its end differs' ELSE 'not possible' END FROM period AS p
    WHERE p.rank = r.rank) WHEN coalesce(steps_agreed + steps_differed, 0) = 0 THEN 'not possible' WHEN steps_differed > 0 THEN steps_differed || ' of ' || (steps_agreed +
  steps_differed) || ' steps differ' WHEN steps_agreed < steps THEN steps_agreed || ' steps exact, ' || (steps -
  steps_agreed) || ' unchecked' ELSE steps_agreed || ' of ' || steps || ' steps exact' END, fidelity, torch_version,
  nccl_version, cuda_version, allocator_backend, allocator_config, world_size, local_rank
FROM rank AS r LEFT JOIN rank_steps AS k ON k.rank = r.rank WHERE rank_in(r.rank, :rank) ORDER BY r.rank

-- name: info_versions
SELECT 'ranks recorded', count(*) || coalesce(' of ' || max(world_size), '') ||
  coalesce('; missing: ' || (SELECT rank_ranges(first, last) FROM missing_ranks), '') FROM rank
UNION ALL
SELECT 'rehearsal', 'of rank' || iif(count(*) > 1, 's ', ' ') || rank_ranges(rank) || ' of ' || max(world_size) ||
  ' on one GPU, by ' || max(rehearsal) || coalesce('; as if it had ' || max(rehearsal_bytes) || ' bytes', '')
FROM rank WHERE rehearsal IS NOT NULL HAVING count(*) > 0
UNION ALL
SELECT 'PyTorch', group_concat(DISTINCT torch_version) FROM rank HAVING count(torch_version) > 0
UNION ALL
SELECT 'NCCL', group_concat(DISTINCT nccl_version) FROM rank HAVING count(nccl_version) > 0
UNION ALL
SELECT 'CUDA', group_concat(DISTINCT cuda_version) FROM rank HAVING count(cuda_version) > 0
UNION ALL
SELECT 'allocator', group_concat(DISTINCT allocator_backend || iif(coalesce(allocator_config, '') = '', '', ' (' ||
    allocator_config || ')')) FROM rank HAVING count(allocator_backend) > 0
UNION ALL
SELECT 'recording began late', sum(restored_allocations) || ' allocations were there before, on rank' ||
  iif(count(*) > 1, 's ', ' ') || rank_ranges(rank) FROM rank WHERE restored_allocations > 0 HAVING count(*) > 0
UNION ALL
SELECT 'steps renumbered', count(*) || ' on rank' || iif(count(DISTINCT rank) > 1, 's ', ' ') ||
  rank_ranges(rank) || ': their number, or a higher one, was used before' FROM renumbered_step
HAVING count(*) > 0
UNION ALL
SELECT replace(key, '_', ' '), iif(key = 'keep', CASE value WHEN 'changes' THEN 'rows of steps that differ' WHEN 'all'
    THEN 'rows of all steps' ELSE value END, value) FROM meta

-- name: info_sources
SELECT iif(count(DISTINCT rank) = (SELECT count(*) FROM rank), 'all', rank_ranges(rank)), source, state,
  reason FROM source WHERE rank_in(rank, :rank) GROUP BY source, state, reason ORDER BY source, min(at_ns)

-- name: info_gaps
SELECT rank, source, count(*), sum(lost), min(at_ns), reason FROM gap WHERE rank_in(rank, :rank)
GROUP BY rank, source, reason
ORDER BY rank, min(at_ns)

-- name: info_retries
SELECT rank, count(*), count(DISTINCT step), sum(served_ns - at_ns), sum(bytes), sum(freed_bytes), min(at_ns) FROM retry
WHERE rank_in(rank, :rank) GROUP BY rank ORDER BY rank

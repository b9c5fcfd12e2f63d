-- name: export_phases
-- Of a step that repeats another one the ledger has only what reaches into one that is kept: half a step would mislead readers.
SELECT p.id, p.tid, p.kind, p.name, p.start_ns, coalesce(p.end_ns, r.end_ns, p.start_ns) AS until_ns,
  (SELECT nullif(label, '(root)') FROM module_name n WHERE n.id = p.module_id), p.step, p.call_index FROM phase AS p JOIN rank AS r ON r.rank = p.rank
WHERE p.rank = :rank AND NOT EXISTS (SELECT 1 FROM period q WHERE q.rank = p.rank AND q.kind = 'step' AND q.step = p.step
    AND q.same_as IS NOT NULL)
ORDER BY p.tid, p.start_ns, until_ns DESC, p.id

-- name: export_marks
SELECT m.tid, m.at_ns, m.name, coalesce(m.domain, ''), m.value, m.step,
  (SELECT nullif(label, '(root)') FROM module_name n WHERE n.id = m.module_id) FROM mark AS m WHERE m.rank = :rank
ORDER BY m.tid, m.at_ns

-- name: export_ranks
WITH moved AS (
  SELECT r.*, coalesce((SELECT offset_ns FROM host_clock AS h WHERE h.host IS r.host), 0) AS offset_ns FROM rank AS r)
SELECT rank, world_size, host, pid, coalesce(device, 0), coalesce(device_name, ''), device_bytes, start_ns, end_ns,
  offset_ns + (SELECT min(start_ns - offset_ns) FROM moved), offset_ns, nccl_version FROM moved
WHERE rank_in(rank, :ranks) ORDER BY rank

-- name: export_threads
SELECT tid, label FROM thread_label WHERE rank = :rank ORDER BY tid

-- name: export_thread
SELECT label FROM thread_label WHERE rank = :rank AND tid = :tid

-- name: export_rank_count
SELECT count(*) FROM rank

-- name: export_has_groups
SELECT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = 'rank_group')

-- name: export_representatives
-- One rank of each group of alike ones, of more than fit the largest group's and the most different; and those that are in
-- none.
SELECT rank_ranges(rank), count(*) FROM (
    SELECT rank FROM (SELECT DISTINCT representative AS rank FROM rank_group ORDER BY group_number LIMIT :most)
    UNION SELECT rank FROM rank WHERE rank NOT IN (SELECT rank FROM rank_group))

-- name: export_highest
SELECT rank_ranges(rank), count(*) FROM (
    SELECT r.rank FROM rank AS r LEFT JOIN life AS l ON l.rank = r.rank ORDER BY l.peak_allocated_bytes DESC, r.rank
    LIMIT :most)

-- name: export_only_nccl
SELECT EXISTS (SELECT 1 FROM kernel) AND NOT EXISTS (SELECT 1 FROM kernel WHERE name NOT LIKE '%nccl%')

-- name: export_choose
CREATE TEMP TABLE exported_rank AS SELECT rank FROM ledger.rank WHERE rank_in(rank, :ranks)

-- name: export_kernels
SELECT k.device, k.stream, k.name, k.correlation, k.start_ns, k.end_ns, c.id, c.operation, c.bytes, c.comm, c.seq,
  c.datatype, (SELECT nranks FROM communicator AS m WHERE m.rank = c.rank AND m.comm = c.comm), c.tid, c.enqueue_ns
FROM kernel AS k
LEFT JOIN (
    SELECT *, row_number() OVER
      (PARTITION BY stream, start_ns, end_ns ORDER BY enqueue_ns <= start_ns DESC, enqueue_ns DESC) AS place
    FROM collective WHERE rank = :rank AND start_ns IS NOT NULL) AS c ON c.place = 1 AND c.stream = k.stream AND
  c.start_ns = k.start_ns AND c.end_ns = k.end_ns WHERE k.rank = :rank ORDER BY k.start_ns

-- name: export_memory
SELECT alloc_ns AS at, 1 AS kind, device, address, bytes, tid, category, stream, requested_bytes, module_id, site_id
FROM allocation WHERE rank = :rank
UNION ALL
SELECT free_ns, 2, device, address, bytes, tid, category, stream, requested_bytes, module_id, NULL FROM allocation
WHERE rank = :rank AND free_ns IS NOT NULL
UNION ALL
SELECT alloc_ns, 0, device, address, bytes, 0, NULL, stream, bytes, NULL, NULL FROM segment
WHERE rank = :rank AND owner = 'pytorch'
UNION ALL
SELECT free_ns, 3, device, address, bytes, 0, NULL, stream, bytes, NULL, NULL FROM segment
WHERE rank = :rank AND owner = 'pytorch' AND free_ns IS NOT NULL ORDER BY at, kind

-- name: datasette_columns
SELECT name FROM pragma_table_info(:table)

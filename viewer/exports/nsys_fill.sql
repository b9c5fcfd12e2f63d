-- From a ledger (attached as `ledger`) to the tables of nsys_schema.sql. kernel_name(), short_name() and progress() come
-- from export_nsys.c, as do the rows of NVTX ranges. Times are from the session's start, as nsys has them.

-- One row a rank. A host is a virtual machine. Many readers know processes by their pid and GPUs by their number alone: so
-- both are made unique over all hosts. A pid that several ranks have (on several hosts, or in containers) stays the first
-- one's; the others get one that Linux never gives. Correlation ids are unique over all processes for the same reason.
CREATE TEMP TABLE host_offset AS SELECT host, offset_ns FROM ledger.host_clock;
CREATE TEMP TABLE process AS
WITH numbered AS (
  SELECT *, dense_rank() OVER (ORDER BY host) - 1 AS n, row_number() OVER (PARTITION BY pid & 0xffffff ORDER BY rank) AS nth
  FROM ledger.rank),
shifted AS (
  SELECT r.*, iif(nth = 1 AND r.pid IS NOT NULL, r.pid & 0xffffff, 0x800000 | r.rank) AS unique_pid,
    coalesce((SELECT offset_ns FROM host_offset h WHERE h.host IS r.host), 0) AS offset_ns FROM numbered r)
SELECT rank, unique_pid AS pid, coalesce(pid & 0xffffff, unique_pid) AS own_pid, device, device_name, device_uuid, device_bytes, multiprocessors, pci_bus_id, host, n,
  start_ns, end_ns,
  n / 255 AS hw, 1 + n % 255 AS vm, (((n / 255) << 56) | ((1 + n % 255) << 48)) AS global_vid,
  (((n / 255) << 56) | ((1 + n % 255) << 48) | (unique_pid << 24)) AS global_pid,
  offset_ns + (SELECT min(start_ns - offset_ns) FROM shifted) AS zero_ns, -- what is subtracted from its times
  coalesce(sum((SELECT max(c) FROM (SELECT max(correlation) AS c FROM ledger.kernel k WHERE k.rank = r.rank
      UNION ALL SELECT max(correlation) FROM ledger.memcpy k WHERE k.rank = r.rank
      UNION ALL SELECT max(correlation) FROM ledger.memset k WHERE k.rank = r.rank)))
    OVER (ORDER BY rank ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS first_correlation
FROM shifted r WHERE rank IN exported_rank;
CREATE UNIQUE INDEX temp.process_rank ON process(rank);

-- The GPUs that ranks use. One that is another rank's is known by that rank's word; of one host they keep CUDA's order.
CREATE TEMP TABLE used_device AS
WITH used AS (
  SELECT rank, device FROM ledger.rank WHERE device IS NOT NULL
  UNION SELECT rank, device FROM ledger.kernel
  UNION SELECT rank, device FROM ledger.memcpy
  UNION SELECT rank, device FROM ledger.memset
  UNION SELECT rank, device FROM ledger.segment
  UNION SELECT rank, device FROM ledger.allocation),
named AS (
  SELECT u.rank, u.device, p.n, p.vm, p.pid, p.hw,
    coalesce(iif(u.device = p.device, p.device_uuid, (SELECT o.device_uuid FROM process o
      WHERE o.n = p.n AND o.device = u.device AND o.device_uuid IS NOT NULL ORDER BY o.rank LIMIT 1)), 'device ' || u.device) AS uuid
  FROM used u JOIN process p ON p.rank = u.rank),
numbered AS (
  SELECT n, uuid, row_number() OVER (ORDER BY n, min(device), uuid) - 1 AS gpu FROM named GROUP BY n, uuid)
SELECT d.rank, d.device, g.gpu, d.uuid, d.hw, d.vm, d.pid FROM named d JOIN numbered g ON g.n = d.n AND g.uuid = d.uuid;
CREATE UNIQUE INDEX temp.used_device_key ON used_device(rank, device);
CREATE TEMP TABLE used_stream AS
SELECT rank, device, stream FROM ledger.kernel UNION SELECT rank, device, stream FROM ledger.memcpy
UNION SELECT rank, device, stream FROM ledger.memset;

-- ---- who and what ----
INSERT INTO META_DATA_EXPORT VALUES
  ('EXPORT_PRODUCT_NAME', 'NVIDIA Nsight Systems'), ('EXPORT_PRODUCT_VERSION', '2024.6.1'),
  ('EXPORT_SCHEMA_VERSION', '3.16.1'), ('EXPORT_SCHEMA_VERSION_MAJOR', '3'), ('EXPORT_SCHEMA_VERSION_MINOR', '16'),
  ('EXPORT_SCHEMA_VERSION_MICRO', '1'), ('EXPORT_WRITTEN_BY', 'shardledger');
INSERT INTO META_DATA_CAPTURE SELECT 'SHARDLEDGER_' || upper(key), value FROM ledger.meta;
INSERT INTO TARGET_INFO_SESSION_START_TIME
SELECT zero, strftime('%Y-%m-%d %H:%M:%S', zero / 1000000000, 'unixepoch'),
  strftime('%Y-%m-%d %H:%M:%S', zero / 1000000000, 'unixepoch')
FROM (SELECT min(start_ns) AS zero FROM process);
INSERT INTO ANALYSIS_DETAILS
SELECT global_vid, max(end_ns - zero_ns) - min(start_ns - zero_ns), min(start_ns - zero_ns), max(end_ns - zero_ns)
FROM process GROUP BY global_vid;
INSERT INTO TARGET_INFO_SYSTEM_ENV SELECT DISTINCT global_vid, 'SystemInfo', 'Hostname', 0, coalesce(host, '') FROM process;
INSERT INTO PROCESSES
SELECT global_pid, pid, 'rank ' || rank || iif(pid = own_pid, '', ' (pid ' || own_pid || ' on ' || coalesce(host, '?') || ')')
FROM process ORDER BY rank;
INSERT INTO TARGET_INFO_GPU(vmId, id, name, busLocation, isDiscrete, totalMemory, smCount, uuid, cuDevice)
SELECT u.vm, u.gpu, max(p.device_name), max(p.pci_bus_id), 1, max(p.device_bytes), max(p.multiprocessors),
  iif(u.uuid LIKE 'device %', NULL, u.uuid), u.gpu
FROM used_device u LEFT JOIN process p ON p.rank = u.rank AND p.device = u.device GROUP BY u.gpu;
INSERT INTO TARGET_INFO_CUDA_DEVICE
SELECT u.gpu, u.gpu, u.pid, g.uuid, g.smCount FROM used_device u JOIN TARGET_INFO_GPU g ON g.id = u.gpu ORDER BY rank, u.gpu;
INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO
SELECT 7, hw, vm, pid, gpu, gpu + 1, NULL, NULL FROM used_device ORDER BY rank;
INSERT INTO TARGET_INFO_CUDA_STREAM
SELECT stream, hw, vm, pid, gpu + 1, 0, 0 FROM used_stream JOIN used_device USING (rank, device) ORDER BY rank, stream;

CREATE TEMP TABLE thread AS
SELECT rank, tid, label FROM ledger.thread_label WHERE rank IN exported_rank
UNION
SELECT rank, own_pid, 'main' FROM process;

-- ---- names ----
CREATE TEMP TABLE kernel_names AS
SELECT name, kernel_name(name) AS full, short_name(name) AS short FROM (SELECT DISTINCT name FROM ledger.kernel);
INSERT INTO StringIds(id, value)
SELECT row_number() OVER (), value FROM (
  SELECT name AS value FROM kernel_names UNION SELECT full FROM kernel_names UNION SELECT short FROM kernel_names
  UNION SELECT 'cuLaunchKernelEx' UNION SELECT 'launch not recorded'
  UNION SELECT label FROM thread
  UNION SELECT DISTINCT name FROM ledger.phase UNION SELECT DISTINCT 'nccl' || operation FROM ledger.collective);
CREATE UNIQUE INDEX StringIdsByValue ON StringIds(value);

INSERT INTO ThreadNames
SELECT s.id, NULL, p.global_pid | (t.tid & 0xffffff) FROM thread t JOIN process p USING (rank)
JOIN StringIds s ON s.value = t.label ORDER BY rank, t.tid;

-- ---- what ran on the GPUs ----
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start, "end", deviceId, contextId, streamId, correlationId, globalPid,
  demangledName, shortName, mangledName, launchType, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,
  staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId)
SELECT k.start_ns - zero_ns, k.end_ns - zero_ns, gpu, gpu + 1, k.stream, first_correlation + k.correlation,
  global_pid, f.id, s.id, m.id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, row_number() OVER (ORDER BY k.start_ns)
FROM ledger.kernel k JOIN process p USING (rank) JOIN used_device USING (rank, device) JOIN kernel_names n ON n.name = k.name
JOIN StringIds f ON f.value = n.full JOIN StringIds s ON s.value = n.short JOIN StringIds m ON m.value = k.name
WHERE progress(k.start_ns)
ORDER BY k.start_ns;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY(start, "end", deviceId, contextId, streamId, correlationId, globalPid, bytes,
  copyKind, srcKind, dstKind)
SELECT k.start_ns - zero_ns, k.end_ns - zero_ns, gpu, gpu + 1, k.stream, first_correlation + k.correlation,
  global_pid, k.bytes, k.kind, CASE k.kind WHEN 1 THEN 7 WHEN 9 THEN 7 ELSE 2 END,
  CASE k.kind WHEN 2 THEN 7 WHEN 9 THEN 7 ELSE 2 END
FROM ledger.memcpy k JOIN process p USING (rank) JOIN used_device USING (rank, device) WHERE progress(k.start_ns) ORDER BY k.start_ns;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET(start, "end", deviceId, contextId, streamId, correlationId, globalPid, value,
  bytes, memKind)
SELECT k.start_ns - zero_ns, k.end_ns - zero_ns, gpu, gpu + 1, k.stream, first_correlation + k.correlation,
  global_pid, 0, k.bytes, 2
FROM ledger.memset k JOIN process p USING (rank) JOIN used_device USING (rank, device) WHERE progress(k.start_ns) ORDER BY k.start_ns;

-- The launch of a kernel is known where a collective was joined to it: of a group's calls the last one before its start. It is
-- before the kernel's start, whatever the clocks say. The others' launches stand right before the start on a thread of their
-- own, number 0, where no range is: so nothing is lost to a join, and nothing goes to a range that happens to be open.
CREATE TEMP TABLE launch AS
WITH call AS (
  SELECT *, row_number() OVER (PARTITION BY rank, stream, start_ns, end_ns
    ORDER BY enqueue_ns <= start_ns DESC, enqueue_ns DESC) AS place
  FROM ledger.collective WHERE start_ns IS NOT NULL)
SELECT c.rank, c.tid, min(c.enqueue_ns, k.start_ns - 1) AS at_ns, k.correlation
FROM call c JOIN ledger.kernel k
  ON k.rank = c.rank AND k.stream = c.stream AND k.start_ns = c.start_ns AND k.end_ns = c.end_ns
WHERE c.place = 1;
CREATE UNIQUE INDEX temp.launch_key ON launch(rank, correlation);
CREATE TEMP TABLE unlaunched AS
SELECT rank, correlation, min(start_ns) - 1 AS at_ns, count(*) AS activities FROM (
  SELECT rank, correlation, start_ns FROM ledger.kernel UNION ALL SELECT rank, correlation, start_ns FROM ledger.memcpy
  UNION ALL SELECT rank, correlation, start_ns FROM ledger.memset) a
WHERE NOT EXISTS (SELECT 1 FROM launch l WHERE l.rank = a.rank AND l.correlation = a.correlation) GROUP BY rank, correlation;
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
SELECT at_ns - zero_ns, at_ns - zero_ns + 1, 1, global_pid | (tid & 0xffffff), first_correlation + correlation,
  (SELECT id FROM StringIds WHERE value = iif(tid = 0, 'launch not recorded', 'cuLaunchKernelEx')), 0, NULL
FROM (SELECT rank, tid, at_ns, correlation FROM launch UNION ALL SELECT rank, 0, at_ns, correlation FROM unlaunched)
JOIN process p USING (rank) ORDER BY at_ns;
INSERT INTO ThreadNames
SELECT (SELECT id FROM StringIds WHERE value = 'launch not recorded'), NULL, global_pid FROM process
WHERE rank IN (SELECT rank FROM unlaunched) ORDER BY rank;

-- ---- memory ----
-- PyTorch's blocks, what other libraries took from the driver, and pinned memory of the host. PyTorch's own segments
-- would count its blocks twice: they stand in for them where a rank's blocks were not recorded.
CREATE TEMP TABLE with_blocks AS SELECT rank FROM ledger.rank r WHERE EXISTS (SELECT 1 FROM ledger.allocation a
  WHERE a.rank = r.rank);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS(start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
  memoryOperationType, name)
SELECT at_ns - zero_ns, global_pid, gpu, gpu + 1, e.address, 0, e.bytes, e.kind, e.operation, e.name
FROM (
  SELECT rank, device, address, bytes, 2 AS kind, category AS name, alloc_ns AS at_ns, 0 AS operation
    FROM ledger.allocation
  UNION ALL SELECT rank, device, address, bytes, 2, category, free_ns, 1 FROM ledger.allocation
    WHERE free_ns IS NOT NULL
  UNION ALL SELECT rank, device, address, bytes, 2, owner, alloc_ns, 0 FROM ledger.segment
    WHERE owner <> 'pytorch' OR rank NOT IN (SELECT rank FROM with_blocks)
  UNION ALL SELECT rank, device, address, bytes, 2, owner, free_ns, 1 FROM ledger.segment
    WHERE free_ns IS NOT NULL AND (owner <> 'pytorch' OR rank NOT IN (SELECT rank FROM with_blocks))
  UNION ALL SELECT rank, r.device, address, bytes, 1, owner, alloc_ns, 0 FROM ledger.host_segment
    JOIN ledger.rank r USING (rank)
  UNION ALL SELECT rank, r.device, address, bytes, 1, owner, free_ns, 1 FROM ledger.host_segment
    JOIN ledger.rank r USING (rank) WHERE free_ns IS NOT NULL) e
JOIN process p USING (rank) JOIN used_device USING (rank, device) WHERE progress(e.at_ns) ORDER BY 1, operation;

-- ---- NVTX: domains, categories, calls of NCCL, and what a reader should not overlook ----
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId)
SELECT start_ns - zero_ns, 75, name, global_pid | own_pid, id
FROM process, (SELECT 'shardledger' AS name, 1 AS id UNION ALL SELECT 'NCCL', 2) ORDER BY rank, id;
CREATE TEMP TABLE kind AS SELECT kind, row_number() OVER (ORDER BY kind) AS id FROM (SELECT DISTINCT kind FROM ledger.phase);
CREATE UNIQUE INDEX temp.kind_by_name ON kind(kind);
INSERT INTO NVTX_EVENTS(start, eventType, category, text, globalTid, domainId)
SELECT start_ns - zero_ns, 33, id, kind, global_pid | own_pid, 1 FROM process, kind ORDER BY rank, id;
-- Only the instant of a call is known: its range is 3 ns long and around its kernel's launch.
INSERT INTO NVTX_EVENTS(start, "end", eventType, text, globalTid, textId, domainId, jsonText)
SELECT min(c.enqueue_ns, coalesce(c.start_ns - 1, c.enqueue_ns)) - 1 - zero_ns,
  min(c.enqueue_ns, coalesce(c.start_ns - 1, c.enqueue_ns)) + 2 - zero_ns, 59, s.value, global_pid | (c.tid & 0xffffff), s.id, 2,
  json_object('NCCL communicator ID', c.comm, 'Message size [bytes]', c.bytes, 'Reduction operation', c.reduction,
    'Root', c.root, 'Peer', c.peer, 'Sequence', c.seq)
FROM ledger.collective c JOIN process p USING (rank) JOIN StringIds s ON s.value = 'nccl' || c.operation
WHERE progress(c.enqueue_ns) ORDER BY c.enqueue_ns;
CREATE TEMP TABLE mark_domain AS
SELECT domain, CASE domain WHEN 'shardledger' THEN 1 WHEN 'NCCL' THEN 2 ELSE
  2 + row_number() OVER (PARTITION BY domain IN ('shardledger', 'NCCL') ORDER BY domain) END AS id
FROM (SELECT DISTINCT domain FROM ledger.mark WHERE domain IS NOT NULL);
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId)
SELECT start_ns - zero_ns, 75, domain, global_pid | own_pid, id FROM process, mark_domain
WHERE id > 2 AND rank IN (SELECT rank FROM ledger.mark m WHERE m.domain = mark_domain.domain) ORDER BY rank, id;
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId, jsonText)
SELECT m.at_ns - zero_ns, 34, m.name, global_pid | (m.tid & 0xffffff),
  coalesce((SELECT id FROM mark_domain d WHERE d.domain = m.domain), 0), json_object('value', m.value, 'step', m.step)
FROM ledger.mark m JOIN process p USING (rank) WHERE progress(m.at_ns) ORDER BY m.at_ns;
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId)
SELECT o.at_ns - zero_ns, 34, 'out of memory: ' || o.requested_bytes || ' bytes refused', global_pid | own_pid, 1
FROM ledger.oom o JOIN process p USING (rank)
UNION ALL
SELECT g.at_ns - zero_ns, 34, 'not recorded: ' || g.source || ': ' || g.reason, global_pid | own_pid, 1
FROM ledger.gap g JOIN process p USING (rank);

-- ---- what a reader has to know before it takes absence for idleness ----
INSERT INTO DIAGNOSTIC_EVENT
SELECT 0, 0, 0, severity, text, NULL FROM (
  SELECT 2 AS severity, 'Only kernels of NCCL were recorded: a GPU without kernels here may be busy (SHARDLEDGER_KERNELS=all '
    || 'records all)' AS text
  WHERE EXISTS (SELECT 1 FROM ledger.kernel) AND NOT EXISTS (SELECT 1 FROM ledger.kernel WHERE name NOT LIKE '%nccl%')
  UNION ALL SELECT 2, 'No kernels were recorded: nothing here says whether a GPU was busy' WHERE NOT EXISTS (SELECT 1 FROM ledger.kernel)
  UNION ALL SELECT 1, 'CUPTI_ACTIVITY_KIND_MEMCPY is empty: no copy was recorded' WHERE NOT EXISTS (SELECT 1 FROM ledger.memcpy)
  UNION ALL SELECT 1, 'CUPTI_ACTIVITY_KIND_MEMSET is empty: no memset was recorded' WHERE NOT EXISTS (SELECT 1 FROM ledger.memset)
  UNION ALL SELECT 1, 'CUPTI_ACTIVITY_KIND_SYNCHRONIZATION is empty: synchronizations are not recorded'
  UNION ALL SELECT 1, 'ProcessStreams is empty: what programs print is not recorded'
  UNION ALL SELECT 1, 'Grids, blocks, registers and shared memory of kernels are 0: they are not recorded'
    WHERE EXISTS (SELECT 1 FROM ledger.kernel)
  UNION ALL SELECT 1, 'Launches of ' || sum(activities) || ' kernels, copies and memsets were not recorded: "launch not recorded" '
    || 'stands for them, on thread 0' FROM unlaunched HAVING count(*) > 0);
INSERT INTO DIAGNOSTIC_EVENT
SELECT o.at_ns - zero_ns, 0, 0, 2, 'Not recorded: ' || o.source || ': ' || o.reason, global_pid
FROM ledger.gap o JOIN process p USING (rank)
UNION ALL
SELECT 0, 0, 0, 2, r.events_lost || ' events lost', global_pid FROM ledger.rank r JOIN process p USING (rank)
WHERE r.events_lost > 0;

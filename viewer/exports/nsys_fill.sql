-- From a ledger (attached as `ledger`) to the tables of nsys_schema.sql. kernel_name(), short_name() and progress() come
-- from export_nsys.c, as do the rows of NVTX ranges. Times are from the session's start, as nsys has them.

-- One row a rank. A host is a virtual machine; ranks of one host that have the same pid (in two containers) are given
-- one each. Correlation ids are made unique over all processes, because some readers join by them alone.
CREATE TEMP TABLE host_offset AS SELECT host, offset_ns FROM ledger.host_clock;
CREATE TEMP TABLE process AS
WITH machine AS (
  SELECT *, row_number() OVER (PARTITION BY host, pid ORDER BY rank) AS nth FROM ledger.rank),
numbered AS (SELECT *, dense_rank() OVER (ORDER BY nth, host) - 1 AS n FROM machine),
shifted AS (
  SELECT r.*, coalesce((SELECT offset_ns FROM host_offset h WHERE h.host IS r.host), 0) AS offset_ns FROM numbered r)
SELECT rank, pid & 0xffffff AS pid, device, device_name, device_uuid, device_bytes, host, world_size, start_ns, end_ns,
  n / 255 AS hw, 1 + n % 255 AS vm, (((n / 255) << 56) | ((1 + n % 255) << 48)) AS global_vid,
  (((n / 255) << 56) | ((1 + n % 255) << 48) | ((pid & 0xffffff) << 24)) AS global_pid,
  offset_ns + (SELECT min(start_ns - offset_ns) FROM shifted) AS zero_ns, -- what is subtracted from its times
  dense_rank() OVER (ORDER BY n, coalesce(device_uuid, device)) - 1 AS gpu,
  coalesce(sum((SELECT max(c) FROM (SELECT max(correlation) AS c FROM ledger.kernel k WHERE k.rank = r.rank
      UNION ALL SELECT max(correlation) FROM ledger.memcpy k WHERE k.rank = r.rank
      UNION ALL SELECT max(correlation) FROM ledger.memset k WHERE k.rank = r.rank)))
    OVER (ORDER BY rank ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS first_correlation
FROM shifted r WHERE rank IN exported_rank;
CREATE UNIQUE INDEX temp.process_rank ON process(rank);

CREATE TEMP TABLE used_device AS
SELECT DISTINCT rank, device FROM (
  SELECT rank, device FROM ledger.rank WHERE device IS NOT NULL
  UNION ALL SELECT DISTINCT rank, device FROM ledger.kernel
  UNION ALL SELECT DISTINCT rank, device FROM ledger.memcpy
  UNION ALL SELECT DISTINCT rank, device FROM ledger.memset
  UNION ALL SELECT DISTINCT rank, device FROM ledger.segment
  UNION ALL SELECT DISTINCT rank, device FROM ledger.allocation);
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
INSERT INTO PROCESSES SELECT global_pid, pid, 'rank ' || rank FROM process ORDER BY rank;
INSERT INTO TARGET_INFO_GPU(vmId, id, name, isDiscrete, totalMemory, uuid, cuDevice)
SELECT vm, gpu, device_name, 1, device_bytes, device_uuid, device FROM process WHERE device IS NOT NULL GROUP BY gpu;
INSERT INTO TARGET_INFO_CUDA_DEVICE
SELECT gpu, device, pid, device_uuid, NULL FROM process WHERE device IS NOT NULL ORDER BY rank;
INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO
SELECT 7, hw, vm, pid, u.device, u.device + 1, NULL, NULL FROM used_device u JOIN process USING (rank) ORDER BY rank;
INSERT INTO TARGET_INFO_CUDA_STREAM
SELECT stream, hw, vm, pid, u.device + 1, 0, 0 FROM used_stream u JOIN process USING (rank) ORDER BY rank, stream;

CREATE TEMP TABLE thread AS
SELECT DISTINCT rank, tid FROM (
  SELECT DISTINCT rank, tid FROM ledger.phase UNION ALL SELECT DISTINCT rank, tid FROM ledger.collective
  UNION ALL SELECT rank, pid FROM process);

-- ---- names ----
CREATE TEMP TABLE kernel_names AS
SELECT name, kernel_name(name) AS full, short_name(name) AS short FROM (SELECT DISTINCT name FROM ledger.kernel);
INSERT INTO StringIds(id, value)
SELECT row_number() OVER (), value FROM (
  SELECT name AS value FROM kernel_names UNION SELECT full FROM kernel_names UNION SELECT short FROM kernel_names
  UNION SELECT 'cuLaunchKernelEx' UNION SELECT 'main' UNION SELECT 'thread ' || tid FROM thread
  UNION SELECT DISTINCT name FROM ledger.phase UNION SELECT DISTINCT 'nccl' || operation FROM ledger.collective);
CREATE UNIQUE INDEX StringIdsByValue ON StringIds(value);

INSERT INTO ThreadNames
SELECT s.id, NULL, p.global_pid | (t.tid & 0xffffff) FROM thread t JOIN process p USING (rank)
JOIN StringIds s ON s.value = iif(t.tid = p.pid, 'main', 'thread ' || t.tid) ORDER BY rank, t.tid;

-- ---- what ran on the GPUs ----
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(start, "end", deviceId, contextId, streamId, correlationId, globalPid,
  demangledName, shortName, mangledName, launchType, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ,
  staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId)
SELECT k.start_ns - zero_ns, k.end_ns - zero_ns, k.device, k.device + 1, k.stream, first_correlation + k.correlation,
  global_pid, f.id, s.id, m.id, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, row_number() OVER (ORDER BY k.start_ns)
FROM ledger.kernel k JOIN process p USING (rank) JOIN kernel_names n ON n.name = k.name
JOIN StringIds f ON f.value = n.full JOIN StringIds s ON s.value = n.short JOIN StringIds m ON m.value = k.name
WHERE progress(k.start_ns)
ORDER BY k.start_ns;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY(start, "end", deviceId, contextId, streamId, correlationId, globalPid, bytes,
  copyKind, srcKind, dstKind)
SELECT k.start_ns - zero_ns, k.end_ns - zero_ns, k.device, k.device + 1, k.stream, first_correlation + k.correlation,
  global_pid, k.bytes, k.kind, CASE k.kind WHEN 1 THEN 7 WHEN 9 THEN 7 ELSE 2 END,
  CASE k.kind WHEN 2 THEN 7 WHEN 9 THEN 7 ELSE 2 END
FROM ledger.memcpy k JOIN process p USING (rank) WHERE progress(k.start_ns) ORDER BY k.start_ns;
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET(start, "end", deviceId, contextId, streamId, correlationId, globalPid, value,
  bytes, memKind)
SELECT k.start_ns - zero_ns, k.end_ns - zero_ns, k.device, k.device + 1, k.stream, first_correlation + k.correlation,
  global_pid, 0, k.bytes, 2
FROM ledger.memset k JOIN process p USING (rank) WHERE progress(k.start_ns) ORDER BY k.start_ns;

-- The launch of a kernel is known where a collective was joined to it: of a group's calls the last one before its start.
CREATE TEMP TABLE launch AS
WITH call AS (
  SELECT *, row_number() OVER (PARTITION BY rank, stream, start_ns, end_ns
    ORDER BY enqueue_ns <= start_ns DESC, enqueue_ns DESC) AS place
  FROM ledger.collective WHERE start_ns IS NOT NULL)
SELECT c.rank, c.tid, c.enqueue_ns AS at_ns, k.correlation
FROM call c JOIN ledger.kernel k
  ON k.rank = c.rank AND k.stream = c.stream AND k.start_ns = c.start_ns AND k.end_ns = c.end_ns
WHERE c.place = 1;
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME
SELECT at_ns - zero_ns, at_ns - zero_ns + 1, 1, global_pid | (tid & 0xffffff), first_correlation + correlation,
  (SELECT id FROM StringIds WHERE value = 'cuLaunchKernelEx'), 0, NULL
FROM launch JOIN process p USING (rank) ORDER BY at_ns;

-- ---- memory ----
-- PyTorch's blocks, what other libraries took from the driver, and pinned memory of the host. PyTorch's own segments
-- would count its blocks twice: they stand in for them where a rank's blocks were not recorded.
CREATE TEMP TABLE with_blocks AS SELECT rank FROM ledger.rank r WHERE EXISTS (SELECT 1 FROM ledger.allocation a
  WHERE a.rank = r.rank);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS(start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
  memoryOperationType, name)
SELECT at_ns - zero_ns, global_pid, e.device, e.device + 1, e.address, 0, e.bytes, e.kind, e.operation, e.name
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
JOIN process p USING (rank) WHERE progress(e.at_ns) ORDER BY 1, operation;

-- ---- NVTX: domains, categories, calls of NCCL, and what a reader should not overlook ----
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId)
SELECT start_ns - zero_ns, 75, name, global_pid | pid, id
FROM process, (SELECT 'shardledger' AS name, 1 AS id UNION ALL SELECT 'NCCL', 2) ORDER BY rank, id;
CREATE TEMP TABLE kind AS SELECT kind, row_number() OVER (ORDER BY kind) AS id FROM (SELECT DISTINCT kind FROM ledger.phase);
CREATE UNIQUE INDEX temp.kind_by_name ON kind(kind);
INSERT INTO NVTX_EVENTS(start, eventType, category, text, globalTid, domainId)
SELECT start_ns - zero_ns, 33, id, kind, global_pid | pid, 1 FROM process, kind ORDER BY rank, id;
INSERT INTO NVTX_EVENTS(start, "end", eventType, text, globalTid, textId, domainId, jsonText)
SELECT c.enqueue_ns - zero_ns, c.enqueue_ns - zero_ns + 1, 59, s.value, global_pid | (c.tid & 0xffffff), s.id, 2,
  json_object('NCCL communicator ID', c.comm, 'Message size [bytes]', c.bytes, 'Reduction operation', c.reduction,
    'Root', c.root, 'Peer', c.peer, 'Sequence', c.seq)
FROM ledger.collective c JOIN process p USING (rank) JOIN StringIds s ON s.value = 'nccl' || c.operation
WHERE progress(c.enqueue_ns) ORDER BY c.enqueue_ns;
CREATE TEMP TABLE mark_domain AS
SELECT domain, CASE domain WHEN 'shardledger' THEN 1 WHEN 'NCCL' THEN 2 ELSE
  2 + row_number() OVER (PARTITION BY domain IN ('shardledger', 'NCCL') ORDER BY domain) END AS id
FROM (SELECT DISTINCT domain FROM ledger.mark WHERE domain IS NOT NULL);
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId)
SELECT start_ns - zero_ns, 75, domain, global_pid | pid, id FROM process, mark_domain
WHERE id > 2 AND rank IN (SELECT rank FROM ledger.mark m WHERE m.domain = mark_domain.domain) ORDER BY rank, id;
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId, jsonText)
SELECT m.at_ns - zero_ns, 34, m.name, global_pid | (m.tid & 0xffffff),
  coalesce((SELECT id FROM mark_domain d WHERE d.domain = m.domain), 0), json_object('value', m.value, 'step', m.step)
FROM ledger.mark m JOIN process p USING (rank) WHERE progress(m.at_ns) ORDER BY m.at_ns;
INSERT INTO NVTX_EVENTS(start, eventType, text, globalTid, domainId)
SELECT o.at_ns - zero_ns, 34, 'out of memory: ' || o.requested_bytes || ' bytes refused', global_pid | pid, 1
FROM ledger.oom o JOIN process p USING (rank)
UNION ALL
SELECT g.at_ns - zero_ns, 34, 'not recorded: ' || g.source || ': ' || g.reason, global_pid | pid, 1
FROM ledger.gap g JOIN process p USING (rank);

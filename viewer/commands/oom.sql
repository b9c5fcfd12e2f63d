-- name: oom_first
-- By the first rank's host's clock; those whose clock can't be compared come last, by their own. The last column: of how many
-- deadly ones the order is unknown, in negative where it is of this one too.
WITH clock AS MATERIALIZED (SELECT host, offset_ns FROM host_clock),
one AS MATERIALIZED (SELECT count(DISTINCT coalesce(host, '')) = 1 AS host FROM rank)
SELECT o.rank, o.at_ns, coalesce(o.step, -1), coalesce(o.phase_id, 0), o.requested_bytes, o.free_bytes, o.reserved_bytes
  - o.active_bytes, o.allocated_bytes, o.reserved_bytes, o.largest_free_bytes, o.other_bytes, count(*) OVER (),
  (SELECT count(*) FROM rank WHERE (:rank IS NULL OR rank_in(rank, :rank))), o.source, o.reason, o.deadly AS deadly, o.wanted_bytes,
  sum(o.deadly AND NOT one.host AND h.host IS NULL) OVER () * iif(one.host OR h.host IS NOT NULL, 1, -1)
FROM request AS o CROSS JOIN one LEFT JOIN rank k ON k.rank = o.rank LEFT JOIN clock h ON h.host = k.host
WHERE (:rank IS NULL OR rank_in(o.rank, :rank))
ORDER BY deadly DESC, h.host IS NULL, iif(deadly, 1, -1) * (o.at_ns - coalesce(h.offset_ns, 0)), o.rank LIMIT 1

-- name: oom_died_before
-- The ranks that were killed before this one ran out, by clocks that leave no doubt of it: how many, which, the first of them, and
-- how long before it was.
SELECT count(*), rank_ranges(k.rank), k.rank, max(d.first_host_ns - k.first_host_ns)
FROM death d JOIN death k ON k.how = 'killed'
  AND k.first_host_ns < d.first_host_ns - iif(k.host IS d.host, 0, k.error_ns + d.error_ns)
WHERE d.rank = :rank AND d.how = 'out of memory' HAVING count(*) > 0

-- name: oom_end
SELECT r.rank, coalesce(p.step, -1), coalesce(p.id, 0), (SELECT count(*) FROM rank), r.clean_exit, (SELECT sum(bytes)
  FROM allocation AS a WHERE a.rank = r.rank AND a.free_ns IS NULL)
FROM rank AS r LEFT JOIN phase AS p ON p.id = (SELECT id FROM phase AS o WHERE o.rank = r.rank AND o.end_ns IS NULL
  ORDER BY start_ns DESC, id DESC LIMIT 1)
LEFT JOIN death d ON d.rank = r.rank
WHERE (:rank IS NULL OR rank_in(r.rank, :rank)) AND (:rank IS NOT NULL OR NOT r.clean_exit)
ORDER BY d.how = 'waiting', d.first_host_ns IS NULL, d.first_host_ns, r.end_ns, r.rank LIMIT 1

-- name: oom_deaths_make
-- In their order: by the first rank's host's clock; those whose order is unknown last.
CREATE TEMP TABLE IF NOT EXISTS death AS
SELECT *, row_number() OVER (ORDER BY first_host_ns IS NULL, first_host_ns, rank) AS place,
  first_host_ns - min(first_host_ns) OVER () AS after_ns,
  iif(host IS first_value(host) OVER in_order, 0, error_ns + first_value(error_ns) OVER in_order) AS after_error_ns
FROM rank_death WINDOW in_order AS (ORDER BY first_host_ns IS NULL, first_host_ns, rank)

-- name: oom_deaths
SELECT rank, host, how, at_ns, first_host_ns, after_ns, after_error_ns, iif(first_host_ns IS NULL, 'unknown', 'known'), waiting_in, waiting_comm,
  waiting_seq, waiting_module, waiting_since_ns FROM death ORDER BY place

-- name: oom_death_groups
-- The first, and of the others those that died in the same way.
SELECT rank_ranges(rank), count(*), iif(place = 1 AND first_host_ns IS NOT NULL AND (SELECT count(*) FROM death) > 1, 'first: ', '') || how,
  min(after_ns), nullif(max(after_ns), min(after_ns)), iif(count(first_host_ns) = 0, 'unknown', NULL),
  waiting_in || coalesce(' of ' || waiting_module, '') || coalesce(printf(', call %d of communicator 0x%x', waiting_seq, waiting_comm), ''),
  max(at_ns - waiting_since_ns)
FROM death GROUP BY place = 1, how, waiting_in, waiting_comm, waiting_seq, first_host_ns IS NULL ORDER BY min(place)

-- name: oom_clocks
-- How well the order is known: the first one's host, how far other hosts' clocks may be off from its own, the ranks that may
-- have died before it, and those of which nothing is known.
SELECT f.host, max(d.after_error_ns), rank_ranges(iif(d.after_ns < d.after_error_ns, d.rank, NULL)),
  rank_ranges(iif(d.first_host_ns IS NULL, d.rank, NULL))
FROM death d JOIN death f ON f.place = 1 WHERE d.host IS NOT f.host HAVING count(*) > 0

-- name: oom_in_order
SELECT rank_ranges(first, last), EXISTS(SELECT 1 FROM rank WHERE fidelity = 'snapshot') FROM missing_ranks

-- name: oom_place
-- The period of an instant outside of steps (NULL: the last one of all) in words, and the step before it.
SELECT iif(p.kind = 'step', 'in ', '') || w.place, p.step - (p.kind = 'step') FROM period p JOIN period_place w ON w.rank = p.rank AND w.period = p.period
WHERE p.rank = :rank AND (:at IS NULL OR p.start_ns <= :at AND p.end_ns >= :at)
ORDER BY iif(:at IS NULL, -p.period, p.kind = 'step'), p.end_ns LIMIT 1

-- name: oom_ranges
SELECT path FROM range_path WHERE id = :phase

-- name: oom_code
-- Where in the code the request came from: the line, its function, the frames of the user's code.
SELECT l.file || coalesce(':' || l.line, ''), l.function, l.stack_of, t.path FROM oom o JOIN site_line l ON l.site_id = o.site_id
LEFT JOIN stack_path t ON t.frame_id = l.frame_id WHERE o.rank = :rank AND o.at_ns = :at AND l.file IS NOT NULL

-- name: oom_lines
-- The lines that made what was alive then, with the category that most of it is of.
WITH part AS (
  SELECT l.file, l.line, l.function, o.category, sum(o.bytes) AS bytes, sum(o.allocations) AS allocations
  FROM oom_site o LEFT JOIN site_line l ON l.site_id = o.site_id
  WHERE o.rank = :rank AND o.at_ns = :at AND EXISTS (SELECT 1 FROM site s WHERE s.rank = :rank)
  GROUP BY l.file, l.line, l.function, o.category)
SELECT coalesce(file || coalesce(':' || line, ''), '(not recorded)'), function, sum(bytes) AS bytes,
  sum(bytes) * 1.0 / (SELECT sum(bytes) FROM part), category, max(bytes), sum(allocations), :rank
FROM part GROUP BY file, line, function ORDER BY bytes DESC, file, line

-- name: oom_requests
SELECT o.rank, o.at_ns, o.step, o.source, o.device, o.requested_bytes, o.free_bytes, o.allocated_bytes,
  o.reserved_bytes, o.largest_free_bytes, o.reason, o.deadly, m.name,
  (SELECT path FROM range_path WHERE id = o.phase_id), l.file || coalesce(':' || l.line, ''), l.function
FROM request AS o LEFT JOIN module_name AS m ON m.id = o.module_id LEFT JOIN site_line l ON l.site_id = o.site_id
WHERE (:rank IS NULL OR rank_in(o.rank, :rank)) ORDER BY o.at_ns

-- name: oom_largest
SELECT a.id, a.bytes, a.category || coalesce('/' || a.detail, ''), a.name, m.name, a.step,
  (SELECT label FROM range_label WHERE id = a.phase_id), l.file || coalesce(':' || l.line, ''), a.rank FROM allocation AS a
LEFT JOIN module_name AS m ON m.id = a.module_id LEFT JOIN site_line l ON l.site_id = a.site_id JOIN rank AS r ON r.rank = a.rank
WHERE a.rank = :rank AND a.device IS r.device AND (:at IS NULL OR a.alloc_ns <= :at) AND
  (a.free_ns IS NULL OR a.free_ns > :at) ORDER BY a.bytes DESC, a.id

-- name: oom_device
SELECT owner, bytes, rank FROM device_balance
WHERE rank = :rank AND at_ns = coalesce(:at, (SELECT max(at_ns) FROM device_sample WHERE rank = :rank)) AND
  (bytes <> 0 OR owner = 'unexplained') ORDER BY owner <> 'used', owner = 'unexplained', bytes DESC

-- name: oom_held
-- What lived at the log's end, in groups: as storage/advise/held.sql has it of a refused request.
CREATE TEMP TABLE held AS
SELECT category, detail, module_id, sum(bytes) AS bytes, count(*) AS allocations FROM allocation
WHERE rank = :rank AND free_ns IS NULL GROUP BY category, detail, module_id

-- name: oom_categories
-- Against the step before: its highest point in the same phase of the same module, or in the whole step where that phase
-- has no row. base is the step and phase compared with; without an earlier step it has no row.
WITH here AS (
  SELECT id, kind, module_id, depth FROM (
    WITH RECURSIVE around(id, depth) AS (
      SELECT :phase, 0
      UNION ALL
      SELECT p.parent_id, depth + 1 FROM around JOIN phase p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
    SELECT p.id, p.kind, p.module_id, depth FROM around JOIN phase p ON p.id = around.id)
  WHERE kind IN ('forward', 'backward', 'recompute', 'optimizer_step') ORDER BY depth LIMIT 1),
previous AS (
  SELECT step, rows_of FROM period_place WHERE rank = :rank AND period = (
    SELECT period FROM step WHERE rank = :rank AND step = :before)),
same AS (
  SELECT v.step, v.rows_of, p.phase, p.module_id FROM here h JOIN previous v
  JOIN peak p ON p.rank = :rank AND p.period = v.rows_of AND p.phase = h.kind
    AND p.module_id IS iif(h.kind = 'optimizer_step', NULL, h.module_id)),
base AS (
  SELECT * FROM same
  UNION ALL
  SELECT step, rows_of, 'step', NULL FROM previous WHERE NOT EXISTS (SELECT 1 FROM same)),
before AS (
  SELECT c.category, c.bytes, b.phase || coalesce(' of ' || n.name, '') || ' in step ' || b.step AS what FROM base b
  JOIN peak_category c ON c.rank = :rank AND c.period = b.rows_of AND c.phase = b.phase AND c.module_id IS b.module_id
  LEFT JOIN module_name n ON n.id = b.module_id),
now AS (SELECT category, sum(bytes) AS bytes, sum(allocations) AS allocations FROM held GROUP BY category),
whole AS (SELECT sum(bytes) AS bytes FROM now)
SELECT n.category, n.bytes, n.bytes * 1.0 / whole.bytes, n.allocations, b.bytes,
  iif(EXISTS (SELECT 1 FROM before), n.bytes - coalesce(b.bytes, 0), NULL), (SELECT max(what) FROM before), :rank
FROM whole CROSS JOIN now n LEFT JOIN before b ON b.category = n.category
UNION ALL
SELECT b.category, 0, 0.0, 0, b.bytes, -b.bytes, what, :rank FROM before b WHERE b.category NOT IN (SELECT category FROM now)
ORDER BY 2 DESC, 5 DESC

-- name: oom_modules
WITH parts AS (SELECT module_id, category, sum(bytes) AS bytes FROM held GROUP BY module_id, category),
placed AS (
  SELECT *, sum(bytes) OVER (PARTITION BY module_id) AS module_bytes,
    row_number() OVER (PARTITION BY module_id ORDER BY bytes DESC, category) AS place FROM parts)
SELECT coalesce(m.name, '(no module)'), module_bytes, category, p.bytes, :rank
FROM placed p LEFT JOIN module_name m ON m.id = p.module_id WHERE place = 1 ORDER BY module_bytes DESC, 1

-- name: oom_request_view
-- Why each request did not fit: the cache would have been enough; the device was not full, so a limit of the process was;
-- others hold what is missing; or too much is live. wanted_bytes: of the driver the allocator wants a whole segment for
-- it, which PyTorch's message names (segment_bytes is a function of ours, so this view is no ledger's). deadly: no step
-- began after it.
CREATE TEMP VIEW IF NOT EXISTS request AS
SELECT *, CASE WHEN source <> 'allocator' AND reserved_bytes - active_bytes >= requested_bytes THEN 'cached'
  WHEN free_bytes >= wanted_bytes THEN 'limit'
  WHEN reserved_bytes - active_bytes >= requested_bytes OR reserved_bytes - active_bytes + free_bytes >= wanted_bytes
    THEN 'fragmentation'
  WHEN other_bytes >= requested_bytes THEN 'others' ELSE 'live' END AS reason
FROM (
  SELECT o.*, coalesce((SELECT sum(b.bytes) FROM device_owner b WHERE b.rank = o.rank AND b.at_ns = o.at_ns
      AND b.device = o.device AND b.owner IN ('other_processes', 'unexplained')), 0) AS other_bytes,
    iif(o.source = 'allocator', segment_bytes(o.requested_bytes, r.allocator_config), o.requested_bytes) AS wanted_bytes,
    NOT EXISTS (SELECT 1 FROM step s WHERE s.rank = o.rank AND s.start_ns > o.at_ns) AS deadly
  FROM main.oom o LEFT JOIN main.rank r ON r.rank = o.rank)

-- name: oom_retries
SELECT count(*), sum(served_ns - at_ns), sum(freed_bytes) FROM retry WHERE rank = :rank AND (:at IS NULL OR at_ns <= :at)

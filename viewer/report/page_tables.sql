-- The small tables of the report's page; a column is named as the page knows it. Times count from :zero.

-- name: page_held
-- Steps whose phases, collectives and module peaks are always there, :step (asked for, or -1) among them. Of a kind that has
-- more than 60000 rows in the drawn ranks the page holds those of these steps alone.
CREATE TEMP TABLE held AS
WITH known AS MATERIALIZED (
  SELECT s.rank, s.step, s.same_as, row_number() OVER (PARTITION BY s.rank ORDER BY s.step) AS nth,
    row_number() OVER (PARTITION BY s.rank ORDER BY s.step DESC) AS nth_last,
    row_number() OVER (PARTITION BY s.rank ORDER BY s.peak_allocated_bytes DESC, s.step) AS nth_highest
  FROM drawn k CROSS JOIN step s ON s.rank = k.rank),
speaking AS (
  SELECT rank, same_as AS step, row_number() OVER (PARTITION BY rank ORDER BY count(*) DESC, same_as) AS nth
  FROM known GROUP BY rank, same_as)
SELECT rank, step FROM known WHERE step = :step OR nth <= 3 OR nth_last = 1 OR nth_highest = 1
UNION
SELECT rank, same_as FROM known WHERE nth_highest = 1 AND same_as IS NOT NULL
UNION
SELECT rank, step FROM speaking WHERE nth <= 20 AND step IS NOT NULL

-- name: page_meta
SELECT key, value FROM meta WHERE key IN ('shardledger_version', 'source_directory') ORDER BY key

-- name: page_categories
SELECT name, colour, meaning FROM category ORDER BY layer

-- name: page_coverage
-- Which of several runs it is, and which ranks are not there.
SELECT (SELECT 'run ' || attempt || ' of ' || (SELECT count(*) FROM attempt) FROM attempt
    WHERE is_this AND (SELECT count(*) FROM attempt) > 1) AS run, (SELECT rank_ranges(first, last) FROM missing_ranks) AS missing,
  (SELECT 'rehearsal of rank' || iif(count(*) > 1, 's ', ' ') || rank_ranges(rank) || ' of ' || max(world_size) FROM rank
    WHERE rehearsal IS NOT NULL HAVING count(*) > 0) AS rehearsal

-- name: page_ranks
SELECT r.rank, r.world_size, r.host, r.pid, r.device, r.device_name, r.device_bytes, r.start_ns - :zero AS start,
  r.end_ns - :zero AS "end", (SELECT ended FROM rank_ending AS e WHERE e.rank = r.rank) AS ended,
  coalesce(r.events_lost, 0) AS lost, r.torch_version, r.nccl_version, r.cuda_version, r.allocator_backend,
  r.allocator_config, r.fidelity, r.restored_allocations, iif(r.rank IN (SELECT rank FROM drawn), (
    SELECT count(*) FROM allocation AS a WHERE a.rank = r.rank AND a.device IS NOT coalesce(r.device, 0)), NULL) AS elsewhere,
  g.group_number AS "group", g.representative
FROM rank AS r LEFT JOIN rank_group AS g ON g.rank = r.rank WHERE r.rank = :rank

-- name: page_groups
-- is_all_of: see rank_difference.
SELECT g.group_number AS "group", rank_ranges(g.rank) AS ranks, count(*) AS count, min(g.representative) AS representative, (
  SELECT min(d.is_all_of) FROM rank_difference AS d WHERE d.group_number = g.group_number) AS is_all_of, min(g.base) AS base
FROM rank_group AS g GROUP BY g.group_number ORDER BY g.group_number

-- name: page_mesh
SELECT rank, iif((SELECT max(mesh) FROM mesh) > 0, 'mesh ' || mesh || ': ', '') || dim AS dim, coordinate FROM mesh
ORDER BY mesh, place, rank

-- name: page_unchecked
-- The first step of which PyTorch's statistics differ, and how many there are.
SELECT count(*) OVER () AS steps, rank, step FROM step WHERE checked = 0 ORDER BY rank, step LIMIT 1

-- name: page_life
-- The highest point of each rank's life. where: in words, for one outside of steps with the period. One query: views of names
-- are made anew for each.
SELECT c.rank, c.step, c.whereabouts AS "where", c.peak_ns - :zero - k.offset_ns AS peak_at, c.peak_allocated_bytes AS
  allocated, c.peak_reserved_bytes AS reserved, c.peak_device_bytes AS device
FROM life AS l JOIN period_peak AS c ON c.rank = l.rank AND c.period = l.peak_period JOIN page_clock AS k ON k.rank = l.rank
ORDER BY c.rank

-- name: page_life_category
SELECT c.rank, c.category, c.bytes FROM life AS l JOIN category_at_peak AS c ON c.rank = l.rank AND c.period = l.peak_period
WHERE l.rank = :rank AND c.bytes <> 0 ORDER BY c.category

-- name: page_steps
SELECT c.rank, c.step, c.same_as, c.start_ns - :zero AS start, c.end_ns - :zero AS "end", c.peak_ns - :zero AS peak_at,
  c.peak_allocated_bytes AS allocated, c.peak_active_bytes AS active, c.peak_reserved_bytes AS reserved,
  c.peak_device_bytes AS device, c.before_allocated_bytes AS before, c.end_allocated_bytes AS end_allocated, c.checked, (
    SELECT place FROM peak_place AS w WHERE w.rank = c.rank AND w.step = c.step) AS place
FROM (SELECT *, coalesce(same_as, step) AS rows_step FROM step) AS c WHERE c.rank = :rank ORDER BY c.step

-- name: page_peak_category
SELECT c.rank, c.step, c.category, c.bytes FROM peak_category AS c
WHERE c.rank = :rank AND c.module_id IS NULL AND c.phase = 'step' AND c.bytes <> 0 ORDER BY c.step, c.category

-- name: page_modules
SELECT m.id, m.rank, m.fqn, n.name, n.label, m.class, m.parent_id AS parent, m.depth, m.is_fsdp, m.param_bytes AS params,
  m.buffer_bytes AS buffers FROM module AS m JOIN module_name AS n ON n.id = m.id WHERE m.rank = :rank ORDER BY m.id

-- name: page_module_peaks
SELECT p.rank, p.step, p.module_id AS module, p.phase, p.allocated_bytes AS allocated, p.own_bytes AS own,
  p.own_with_children_bytes AS whole FROM peak AS p
WHERE p.rank = :rank AND p.step IS NOT NULL AND p.module_id IS NOT NULL AND
  ((SELECT count(*) FROM peak WHERE rank IN (SELECT rank FROM drawn)) <= 60000 OR p.step IN (SELECT step FROM held WHERE rank = :rank))
ORDER BY p.step, p.module_id, p.phase

-- name: page_phases
SELECT p.rank, p.tid, p.kind, p.name, p.module_id AS module, p.step, p.start_ns - :zero AS start,
  coalesce(p.end_ns, r.end_ns, p.start_ns) - :zero AS "end", p.end_ns IS NULL AS open, coalesce(u.kind = 'step', 1) AS
  outer FROM phase AS p JOIN rank AS r ON r.rank = p.rank LEFT JOIN phase AS u ON u.id = p.parent_id
WHERE p.rank = :rank AND p.kind <> 'step' AND ((SELECT count(*) FROM phase WHERE rank IN (SELECT rank FROM drawn)) <= 60000 OR coalesce(u.kind = 'step', 1) OR
    p.step IN (SELECT step FROM held WHERE rank = :rank)) ORDER BY p.start_ns, "end" DESC, p.id

-- name: page_collectives
SELECT c.rank, c.operation, c.bytes, printf('%x', c.comm) AS comm, c.seq, c.module_id AS module, c.step, c.enqueue_ns -
  :zero AS enqueued, c.start_ns - :zero AS start, c.end_ns - :zero AS "end", c.stream, c.reduction,
  m.late_ns AS late FROM collective AS c LEFT JOIN collective_meeting AS m ON m.collective_id = c.id
WHERE c.rank = :rank AND
  ((SELECT count(*) FROM collective WHERE rank IN (SELECT rank FROM drawn)) <= 60000 OR c.step IN (SELECT step FROM held WHERE rank = :rank))
ORDER BY coalesce(c.start_ns, c.enqueue_ns), c.id

-- name: page_collective_totals
SELECT rank, operation, count(*) AS calls, sum(bytes) AS bytes, sum((end_ns - start_ns) / kernel_calls) AS busy,
  count(start_ns) AS timed FROM collective WHERE rank = :rank GROUP BY operation ORDER BY operation

-- name: page_collective_repeats
SELECT rank, operation, sum(calls) AS calls, sum(bytes) AS bytes, sum(duration_ns) AS busy, sum(timed) AS timed
FROM collective_total WHERE rank = :rank GROUP BY operation ORDER BY operation

-- name: page_device_samples
WITH kept AS (
  SELECT d.*, row_number() OVER (ORDER BY d.at_ns) AS place, count(*) OVER () AS samples, max(d.used_bytes) OVER () AS
    most FROM device_sample AS d JOIN rank AS r ON r.rank = d.rank AND r.device IS d.device WHERE d.rank = :rank)
SELECT rank, at_ns - :zero AS at, total_bytes AS total, used_bytes AS used, samples FROM kept
WHERE place IN (1, samples) OR used_bytes = most OR place % (1 + samples / 1000) = 0 ORDER BY at_ns

-- name: page_device_balance
SELECT b.rank, b.at_ns - :zero AS at, b.owner, b.bytes FROM device_balance AS b
JOIN rank AS r ON r.rank = b.rank AND r.device IS b.device WHERE b.rank = :rank AND b.owner <> 'used' ORDER BY b.at_ns

-- name: page_device_meaning
SELECT o.owner, coalesce(k.meaning, 'a library, by its file''s name') AS meaning
FROM (SELECT owner FROM device_owner UNION SELECT 'unexplained') AS o
LEFT JOIN device_owner_meaning AS k ON k.owner = o.owner ORDER BY coalesce(k.place, 11.5), o.owner

-- name: page_oom
SELECT o.rank, o.at_ns - :zero AS at, o.requested_bytes AS requested, o.wanted_bytes AS wanted, o.free_bytes AS free,
  o.allocated_bytes AS allocated, o.reserved_bytes AS reserved, o.largest_free_bytes AS largest_free, o.source, o.step,
  (SELECT path FROM range_path WHERE id = o.phase_id) AS place, (
    SELECT l.file || coalesce(':' || l.line, '') || ' in ' || l.function FROM site_line AS l WHERE l.site_id = o.site_id) AS line
FROM request AS o WHERE o.rank = :rank ORDER BY o.at_ns

-- name: page_sited
-- How many sites are known of the rank, and why there is none.
SELECT r.rank, (SELECT count(*) FROM site AS s WHERE s.rank = r.rank) AS sites, o.state, o.reason FROM rank AS r
LEFT JOIN source AS o ON o.rank = r.rank AND o.source = 'torch_sites' WHERE r.rank = :rank ORDER BY o.at_ns DESC LIMIT 1

-- name: page_gaps
SELECT rank, at_ns - :zero AS at, source, lost, reason FROM gap WHERE rank = :rank ORDER BY at_ns

-- name: page_sources
SELECT rank, source, state, reason, at_ns - :zero AS at FROM source
WHERE rank = :rank AND state <> 'on' AND reason <> 'the process ends' ORDER BY at_ns

-- name: page_has_table
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = :name

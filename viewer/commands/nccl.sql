-- What `shardledger nccl` asks. One pass over the calls (view collective_cost) makes parts (nccl_parts.c), whose sums all
-- tables share. The calls of a collective are counted once a rank; bytes and transfer times, which all its ranks have
-- alike, are added up the same way, so that bandwidths are right. Medians are of the ranks' calls.

-- name: nccl_calls
-- The first four columns say in which part a call is. The others are added up there: nccl_parts.c says how.
SELECT rank, operation, comm, module_id, duration_ns, delay_ns, spread_ns, bytes, share_ns, exposed_share_ns, transfer_ns,
  algorithm_bytes, bus_bytes, others_waited_ns, nranks
FROM collective_cost WHERE (:rank IS NULL OR rank_in(rank, :rank)) AND (:step IS NULL OR step = :step)

-- name: nccl_part_table
CREATE TEMP TABLE part(rank, operation, comm, module_id, calls, has_rows, durations, delays, spreads, timed, met,
  max_spread_ns, last, late_ns, max_late_ns, nranks, bytes, share_ns, exposed_ns, exposable_ns, transfer_ns,
  algorithm_bytes, bus_bytes, others_waited_ns)

-- name: nccl_part_add
-- Parameters: the four, calls, three lists of values, then number, sum and greatest of each sum.
INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9, ?15, ?17, ?18, ?19, ?20, ?47, ?22, ?25, ?28, ?31, ?34,
  ?37, ?40, ?43)

-- name: nccl_parts_repeated
-- The calls of steps that repeat another one have no rows; of them calls, bytes and times are known.
INSERT INTO part(rank, operation, comm, has_rows, calls, bytes, timed, share_ns)
SELECT rank, operation, comm, 0, sum(calls), sum(bytes), sum(timed), sum(iif(timed, duration_ns, NULL)) FROM (
  SELECT rank, operation, comm, calls, bytes, timed, duration_ns FROM rank_collectives WHERE :step IS NULL
  UNION ALL
  SELECT rank, operation, comm, calls, bytes, timed, duration_ns
  FROM rank_steps CROSS JOIN collective_total USING (rank) WHERE step = :step AND NOT before)
WHERE (:rank IS NULL OR rank_in(rank, :rank)) GROUP BY rank, operation, comm

-- name: nccl_operations
SELECT operation, count(DISTINCT rank), sum(calls),
  iif(:text AND NOT max(sum(timed) <> sum(calls)) OVER (), NULL, sum(timed)), sum(bytes),
  cast(round(sum(share_ns)) AS INTEGER), median(durations), cast(round(sum(exposed_ns)) AS INTEGER),
  iif(sum(exposable_ns) > 0, sum(exposed_ns) / sum(exposable_ns), NULL), sum(algorithm_bytes) / sum(transfer_ns),
  sum(bus_bytes) / sum(transfer_ns), median(delays), median(spreads), max(max_spread_ns) FROM part GROUP BY operation
ORDER BY sum(share_ns) DESC, operation

-- name: nccl_modules
-- Modules of all ranks by their name, in the model's order (of an id the lower 40 bits count within its rank); calls that
-- serve none come last. Those of several models of one class are kept apart by the order of these.
SELECT iif(:text, coalesce(max(n.label), '(none)'), m.fqn), operation, count(DISTINCT p.rank), sum(calls),
  iif(:text AND NOT max(sum(timed) <> sum(calls)) OVER (), NULL, sum(timed)), sum(bytes),
  cast(round(sum(share_ns)) AS INTEGER), median(durations), cast(round(sum(exposed_ns)) AS INTEGER),
  iif(sum(exposable_ns) > 0, sum(exposed_ns) / sum(exposable_ns), NULL), sum(algorithm_bytes) / sum(transfer_ns),
  sum(bus_bytes) / sum(transfer_ns), median(delays), median(spreads), max(max_spread_ns) FROM part p
LEFT JOIN module m ON m.id = p.module_id LEFT JOIN module_name n ON n.id = m.id WHERE has_rows
GROUP BY m.fqn, m.class, n.root_class, n.root_number, operation
ORDER BY min(m.id) & 0xffffffffff NULLS LAST, operation

-- name: nccl_communicators
-- Name, size and device memory are the most that any rank says.
SELECT iif(p.comm IS NULL, '(unknown)', printf('%016x', p.comm)), k.name, coalesce(k.nranks, max(p.nranks)), k.device_bytes,
  count(DISTINCT rank), sum(calls),
  iif(:text AND NOT max(sum(timed) <> sum(calls)) OVER (), NULL, sum(timed)), sum(bytes),
  cast(round(sum(share_ns)) AS INTEGER), median(durations), cast(round(sum(exposed_ns)) AS INTEGER),
  iif(sum(exposable_ns) > 0, sum(exposed_ns) / sum(exposable_ns), NULL), sum(algorithm_bytes) / sum(transfer_ns),
  sum(bus_bytes) / sum(transfer_ns), median(delays), median(spreads), max(max_spread_ns)
FROM part p LEFT JOIN (SELECT comm, max(name) AS name, max(nranks) AS nranks, max(device_bytes) AS device_bytes
  FROM communicator WHERE (:rank IS NULL OR rank_in(rank, :rank)) GROUP BY comm) k ON k.comm = p.comm
GROUP BY p.comm ORDER BY sum(share_ns) DESC, p.comm

-- name: nccl_stragglers
-- Text has the ranks that were never last in one row.
WITH met AS (
  SELECT rank, host, sum(met) AS met, sum(last) AS last, sum(late_ns) * 1.0 AS late_ns, max(max_late_ns) AS max_late_ns,
    sum(others_waited_ns) AS waited_ns FROM part JOIN rank USING (rank) WHERE has_rows GROUP BY rank HAVING sum(met) > 0)
SELECT min(rank), iif(length(rank_ranges(rank)) > 40, count(*) || ' ranks', rank_ranges(rank)),
  iif(count(DISTINCT host) = 1, min(host), NULL), sum(met), sum(last),
  sum(last) * 1.0 / sum(met), cast(sum(late_ns) / sum(last) AS INTEGER), max(max_late_ns), coalesce(sum(waited_ns), 0) AS waited
FROM met GROUP BY iif(:text AND last = 0, -1, rank) ORDER BY waited DESC, min(rank)

-- name: nccl_slowest
-- One row for all ranks of a collective: what took longest on any of them. top: so many of the longest calls that they are
-- of as many collectives as are asked for.
WITH top AS MATERIALIZED (
  SELECT id, end_ns - start_ns AS longest_ns FROM collective
  WHERE (:rank IS NULL OR rank_in(rank, :rank)) AND (:step IS NULL OR step = :step) AND end_ns - start_ns IS NOT NULL
  ORDER BY end_ns - start_ns DESC, id LIMIT :slowest * coalesce(
    (SELECT max(calls) FROM (SELECT count(*) AS calls FROM collective_meeting GROUP BY meeting_id)), 1))
SELECT c.step, iif(c.comm IS NULL, NULL, printf('%016x', c.comm)), c.seq, c.operation, iif(:text, n.label, n.fqn), c.bytes,
  c.duration_ns, c.rank, e.exposed_ns, cast(c.transfer_ns AS INTEGER),
  iif(c.transfer_ns > 0, c.bus_bytes / c.transfer_ns, NULL), c.spread_ns,
  (SELECT min(o.rank) FROM collective_cost o WHERE o.comm = c.comm AND o.seq = c.seq AND o.meeting_id = c.meeting_id
    AND o.is_last)
FROM (SELECT id, longest_ns FROM (
    SELECT t.id, longest_ns, row_number() OVER (PARTITION BY meeting_id ORDER BY longest_ns DESC, t.id) AS place
    FROM top t LEFT JOIN collective_meeting m ON m.collective_id = t.id)
  WHERE place = 1 ORDER BY longest_ns DESC, id LIMIT :slowest) l
JOIN collective_cost c ON c.id = l.id JOIN collective e ON e.id = l.id LEFT JOIN module_name n ON n.id = c.module_id
ORDER BY l.longest_ns DESC, l.id

-- name: nccl_coverage
-- A host's clock is aligned where a call of its ranks has an instant on the first host's: a rank's ids begin with
-- its number. The last three: of the calls that were asked for and tell it, what was exposed, their whole time, and the share.
SELECT calls, joined, (SELECT count(*) FROM kernel WHERE name GLOB '*nccl*Kernel*'), repeated, repeated_timed, hosts,
  1 + (SELECT count(DISTINCT host) FROM rank r WHERE host <> (SELECT host FROM rank ORDER BY rank LIMIT 1) AND EXISTS (
    SELECT 1 FROM collective_meeting m WHERE m.collective_id BETWEEN r.rank << 40 AND r.rank << 40 | 0xffffffffff
      AND m.arrival_ns IS NOT NULL)),
  cast(round(exposed_ns) AS INTEGER), cast(round(whole_ns) AS INTEGER), exposed_ns / whole_ns
FROM (SELECT count(*) AS calls, count(joined_by) AS joined FROM collective),
  (SELECT sum(exposed_ns * 1.0 / kernel_calls) AS exposed_ns, sum((end_ns - start_ns) * 1.0 / kernel_calls) AS whole_ns
    FROM collective WHERE exposed_ns IS NOT NULL AND end_ns - start_ns IS NOT NULL AND (:rank IS NULL OR rank_in(rank, :rank))
      AND (:step IS NULL OR step = :step)),
  (SELECT coalesce(sum(calls), 0) AS repeated, coalesce(sum(timed), 0) AS repeated_timed FROM rank_collectives),
  (SELECT count(DISTINCT coalesce(host, '')) AS hosts FROM rank)

-- name: nccl_untimed
SELECT untimed, count(*) AS calls FROM collective WHERE untimed IS NOT NULL GROUP BY untimed ORDER BY calls DESC

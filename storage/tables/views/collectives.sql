-- What NCCL's calls cost, and who was late.

-- name: views

-- Each NCCL call with what it cost; those of steps that repeat another one are only in collective_total. delay_ns: from the host's call to the start on the device. duration_ns: on the device;
-- share_ns: its part of that where one kernel served several calls, exposed_share_ns: the exposed part of this. arrival_ns: its start on the first host's clock;
-- late_ns: after the first rank to arrive; spread_ns: from the first to the last; NULL where not all of the ledger's ranks in it are known; is_last: this rank was that last one
-- (nobody is where all came at once), and others_waited_ns is how long the others waited for it, in sum.
-- transfer_ns: the shortest share of all ranks, that is without waiting for others; NULL where one's time is not known. algorithm_bytes and bus_bytes are
-- NCCL-tests' definitions: divided by a time they are its algorithm and bus bandwidth. meeting_id is the same of all calls of one collective.
CREATE VIEW collective_cost AS
SELECT id, rank, comm, seq, operation, bytes, module_id, step, nranks, enqueue_ns, start_ns, end_ns,
  end_ns - start_ns AS duration_ns, (end_ns - start_ns) * 1.0 / kernel_calls AS share_ns,
  exposed_ns * 1.0 / kernel_calls AS exposed_share_ns, transfer_ns, start_ns - enqueue_ns AS delay_ns, arrival_ns,
  late_ns, spread_ns, spread_ns IS NOT NULL AND late_ns = spread_ns AND spread_ns > 0 AS is_last, others_waited_ns,
  bytes * CASE operation WHEN 'AllGather' THEN nranks WHEN 'ReduceScatter' THEN nranks WHEN 'AlltoAll' THEN nranks
    WHEN 'Gather' THEN nranks WHEN 'Scatter' THEN nranks ELSE 1 END AS algorithm_bytes,
  bytes * CASE operation WHEN 'AllGather' THEN nranks - 1.0 WHEN 'ReduceScatter' THEN nranks - 1.0
    WHEN 'AllReduce' THEN 2.0 * (nranks - 1) / nranks WHEN 'AlltoAll' THEN nranks - 1.0 WHEN 'Gather' THEN nranks - 1.0
    WHEN 'Scatter' THEN nranks - 1.0 ELSE 1.0 END AS bus_bytes, meeting_id
FROM collective c LEFT JOIN collective_meeting m ON m.collective_id = c.id;

-- Who was late: how often each rank arrived last, how far behind the first, and how long the others waited for it in all.
CREATE VIEW straggler AS
SELECT rank, count(*) AS collectives, sum(is_last) AS last, avg(is_last) AS share,
  avg(spread_ns) FILTER (WHERE is_last) AS mean_late_ns, max(spread_ns) FILTER (WHERE is_last) AS max_late_ns,
  coalesce(sum(others_waited_ns), 0) AS others_waited_ns
FROM collective_cost WHERE spread_ns IS NOT NULL GROUP BY rank;

-- Fills collective_meeting: which calls are one collective, and what came of it. Runs once, when the last rank's rows are
-- in: who was late can be told only then, and over millions of calls it takes too long to be found out for each question.
-- A send meets a receive, whose name is another; what has no number can't be found on other ranks: both are alone.
DELETE FROM collective_meeting;

INSERT INTO collective_meeting
WITH size AS MATERIALIZED ( -- of each rank's communicators; members: ranks of it that the ledger has
  SELECT k.rank, k.comm, coalesce(k.nranks, nullif(iif((SELECT count(*) = max(world_size) FROM rank), u.members, 0), 0))
    AS nranks, u.members
  FROM communicator k JOIN (SELECT comm, count(DISTINCT rank) AS members FROM communicator GROUP BY comm) u USING (comm)),
clock AS MATERIALIZED (SELECT r.rank, h.offset_ns FROM rank r LEFT JOIN host_clock h ON h.host IS r.host),
call AS NOT MATERIALIZED (
  SELECT c.id, c.rank, c.comm, c.seq, c.operation, c.bytes, k.nranks, k.members, c.start_ns - h.offset_ns AS arrival_ns,
    (c.end_ns - c.start_ns) * 1.0 / c.kernel_calls AS share_ns, c.start_ns - h.offset_ns - z.start_ns AS since_ns
  FROM collective c CROSS JOIN (SELECT min(start_ns) AS start_ns FROM rank) z
  LEFT JOIN size k ON k.rank = c.rank AND k.comm = c.comm LEFT JOIN clock h ON h.rank = c.rank),
met AS MATERIALIZED (
  -- The sum of instants in two parts, neither of which can overflow, whatever the log says.
  SELECT comm, seq, operation, bytes, min(id) AS id, min(arrival_ns) AS first_ns, max(arrival_ns) AS last_ns,
    max(since_ns) * count(arrival_ns) - (sum(since_ns >> 20) * 1048576 + sum(since_ns & 1048575)) AS waited_ns,
    count(arrival_ns) > 1 AND count(arrival_ns) >= coalesce(max(members), 0) AS all_arrived,
    iif(count(share_ns) >= coalesce(max(nranks), count(*)), min(share_ns), NULL) AS transfer_ns
  FROM call WHERE comm IS NOT NULL AND seq IS NOT NULL AND operation NOT IN ('Send', 'Recv')
  GROUP BY comm, seq, operation, bytes)
SELECT c.id, coalesce(m.id, c.id), c.nranks, c.arrival_ns,
  iif(m.all_arrived, c.arrival_ns - m.first_ns, NULL), iif(m.all_arrived, m.last_ns - m.first_ns, NULL),
  iif(m.id IS NULL, c.share_ns, m.transfer_ns),
  iif(m.all_arrived AND c.arrival_ns = m.last_ns AND m.last_ns > m.first_ns, m.waited_ns, NULL)
FROM call c LEFT JOIN met m ON m.comm = c.comm AND m.seq = c.seq AND m.operation = c.operation AND m.bytes IS c.bytes;

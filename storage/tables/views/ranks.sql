-- The ranks beside each other: whose clock is ahead, who is missing, how each ended.

-- name: views

-- How a rank ended: out of memory where no step began after a refused request.
CREATE VIEW rank_ending AS
SELECT r.rank, CASE WHEN EXISTS (SELECT 1 FROM oom o WHERE o.rank = r.rank AND NOT EXISTS (
    SELECT 1 FROM step s WHERE s.rank = o.rank AND s.start_ns > o.at_ns)) THEN 'out of memory'
  WHEN r.fidelity = 'snapshot' THEN 'snapshot' WHEN r.clean_exit THEN 'clean' ELSE 'cut off' END AS ended
FROM rank r;

-- How far each host's clock is ahead of that of the first rank's host, from the ends of collectives that both took part in: a
-- collective ends on all its ranks at nearly the same time, so the median difference of the ends counts. Hosts that share none
-- with it are compared through others: hops of them, by the fewest; collectives are those of the last hop. error_ns: it is off
-- by that at most, as no rank's part ends before every other's has begun; NULL where no operation was one that all wait for.
-- Hosts that nothing connects are not here.
CREATE VIEW host_clock AS
WITH RECURSIVE ends AS MATERIALIZED (
  SELECT c.comm, c.seq, r.host, max(c.end_ns) AS end_ns, min(c.end_ns) AS first_end_ns,
    max(iif(c.operation IN ('AllReduce', 'AllGather', 'ReduceScatter', 'AlltoAll'), c.start_ns, NULL)) AS last_start_ns
  FROM collective c JOIN rank r ON r.rank = c.rank
  WHERE c.end_ns IS NOT NULL AND c.comm IS NOT NULL AND c.operation NOT IN ('Send', 'Recv')
    AND (SELECT count(DISTINCT host) FROM rank) > 1
  GROUP BY c.comm, c.seq, r.host),
first AS (SELECT host FROM rank ORDER BY rank LIMIT 1),
node AS MATERIALIZED (SELECT host, ',' || row_number() OVER (ORDER BY host) || ',' AS mark FROM (SELECT DISTINCT host FROM rank)),
member AS MATERIALIZED (SELECT host, comm, min(seq) AS from_seq, max(seq) AS to_seq FROM ends GROUP BY host, comm),
link AS MATERIALIZED (
  SELECT DISTINCT a.host, m.mark, b.host AS other, n.mark AS other_mark FROM member a JOIN member b ON b.comm = a.comm
    AND b.host <> a.host AND b.from_seq <= a.to_seq AND b.to_seq >= a.from_seq
  JOIN node m ON m.host = a.host JOIN node n ON n.host = b.host),
walk(hops, marks, before) AS ( -- marks: of all hosts within so many hops
  SELECT 0, mark, 0 FROM node JOIN first USING (host)
  UNION ALL
  SELECT hops + 1, marks || coalesce((SELECT group_concat(other_mark, '') FROM (SELECT DISTINCT other_mark FROM link
    WHERE instr(walk.marks, mark) AND NOT instr(walk.marks, other_mark))), ''), length(marks)
  FROM walk WHERE length(marks) > before),
distance AS MATERIALIZED (SELECT n.host, min(w.hops) AS hops FROM walk w JOIN node n ON instr(w.marks, n.mark) GROUP BY n.host),
way AS MATERIALIZED ( -- of each host, the one that it is compared with
  SELECT d.host, min(k.other) AS other FROM distance d JOIN link k ON k.host = d.host
  JOIN distance n ON n.host = k.other AND n.hops = d.hops - 1 GROUP BY d.host),
difference AS (
  SELECT w.host, w.other, e.end_ns - f.end_ns AS ns,
    row_number() OVER (PARTITION BY w.host ORDER BY e.end_ns - f.end_ns) AS place,
    count(*) OVER (PARTITION BY w.host) AS collectives,
    max(e.last_start_ns - f.first_end_ns) OVER (PARTITION BY w.host) AS least_ns,
    min(e.first_end_ns - f.last_start_ns) OVER (PARTITION BY w.host) AS most_ns
  FROM way w JOIN ends e ON e.host = w.host JOIN ends f ON f.comm = e.comm AND f.seq = e.seq AND f.host = w.other),
chain(host, offset_ns, collectives, hops, error_ns) AS (
  SELECT host, CAST(0 AS INTEGER), CAST(NULL AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER) FROM first
  UNION ALL
  SELECT d.host, c.offset_ns + d.ns, d.collectives, c.hops + 1, c.error_ns + max(d.most_ns - d.ns, d.ns - d.least_ns, 0)
  FROM chain c JOIN difference d ON d.other = c.host WHERE d.place = (d.collectives + 1) / 2)
SELECT * FROM chain;

-- Ranks of the job that are not in the ledger: from first to last. Of a rehearsal none is missing: nobody else was there.
CREATE VIEW missing_ranks AS
SELECT rank + 1 AS first, next - 1 AS last FROM (
  SELECT rank, lead(rank, 1, (SELECT max(world_size) FROM rank)) OVER (ORDER BY rank) AS next
  FROM (SELECT -1 AS rank UNION ALL SELECT rank FROM rank))
WHERE next > rank + 1 AND NOT EXISTS (SELECT 1 FROM rank WHERE rehearsal IS NOT NULL);

-- The ranks that did not end in order, and when. how: 'out of memory', at the request after which no step began; 'waiting': its
-- log just stops, and for a second or more before that it began nothing, with a collective that had not ended: the first such
-- one in the step, or where device times tell nothing of the step, the last call; 'killed': its log just stops (also of a crash,
-- or while it still runs). first_host_ns: at_ns by the first rank's host's clock, error_ns as in host_clock; NULL where the
-- clocks can't be compared, so that the order is unknown. waiting_since_ns: the call, by its own clock.
CREATE VIEW rank_death AS
WITH refused AS MATERIALIZED (
  SELECT o.rank, min(o.at_ns) AS at_ns FROM oom o WHERE NOT EXISTS (
    SELECT 1 FROM step s WHERE s.rank = o.rank AND s.start_ns > o.at_ns) GROUP BY o.rank),
silent AS MATERIALIZED (
  SELECT r.rank FROM rank r WHERE NOT r.clean_exit AND r.end_ns - 1000000000 >= max(
    coalesce((SELECT max(p.start_ns) FROM phase p WHERE p.rank = r.rank), r.start_ns),
    coalesce((SELECT max(a.alloc_ns) FROM allocation a WHERE a.rank = r.rank), r.start_ns))),
last_call AS MATERIALIZED (
  SELECT rank, max(enqueue_ns) AS last_ns, step FROM collective WHERE rank IN (SELECT rank FROM silent) GROUP BY rank),
call AS MATERIALIZED (
  SELECT c.*, l.last_ns, max(iif(c.end_ns IS NULL, NULL, c.enqueue_ns)) OVER (PARTITION BY c.rank) AS ended_ns
  FROM collective c CROSS JOIN last_call l ON l.rank = c.rank AND l.step IS c.step),
waited AS MATERIALIZED (
  SELECT rank, comm, seq, operation, module_id, min(enqueue_ns) AS enqueue_ns FROM call
  WHERE end_ns IS NULL AND iif(ended_ns IS NULL, enqueue_ns = last_ns, enqueue_ns > ended_ns) GROUP BY rank),
death AS (
  SELECT r.rank, r.host, CASE WHEN f.rank IS NOT NULL THEN 'out of memory' WHEN l.rank IS NOT NULL THEN 'waiting'
    ELSE 'killed' END AS how, coalesce(f.at_ns, r.end_ns) AS at_ns, l.operation, l.comm, l.seq,
    l.module_id, l.enqueue_ns
  FROM rank r LEFT JOIN refused f ON f.rank = r.rank LEFT JOIN waited l ON l.rank = r.rank AND f.rank IS NULL
  WHERE f.rank IS NOT NULL OR NOT r.clean_exit)
SELECT d.rank, d.host, d.how, d.at_ns, d.at_ns - coalesce(h.offset_ns, iif(u.hosts = 1, 0, NULL)) AS first_host_ns,
  coalesce(h.error_ns, iif(u.hosts = 1, 0, NULL)) AS error_ns, d.operation AS waiting_in, d.comm AS waiting_comm,
  d.seq AS waiting_seq, n.name AS waiting_module, d.enqueue_ns AS waiting_since_ns
FROM death d CROSS JOIN (SELECT count(DISTINCT coalesce(host, '')) AS hosts FROM rank) u
LEFT JOIN host_clock h ON h.host = d.host LEFT JOIN module_name n ON n.id = d.module_id;

-- name: ranks_data
-- Each group and its facts, the largest group first, which has none.
SELECT g.group_number, g.list, g.ranks, g.representative, g.host, d.is_all_of, d.kind, d.bytes, d.bytes_per_step,
  d.category || coalesce('/' || d.detail, ''), d.module, d.phase, d.owner_bytes, d.since_step, d.last_step, d.steps, d.period,
  w.place, l.peak_allocated_bytes, d.next_to, d.is_rest_of
FROM (SELECT g.group_number, rank_ranges(g.rank) AS list, count(*) AS ranks, min(g.representative) AS representative,
    iif(count(DISTINCT k.host) = 1, min(k.host), NULL) AS host
  FROM rank_group g JOIN rank k USING (rank) GROUP BY g.group_number) g
JOIN life l ON l.rank = g.representative LEFT JOIN rank_difference d USING (group_number)
LEFT JOIN period_place w ON w.rank = g.representative AND w.period = d.period
WHERE g.group_number IN (SELECT group_number FROM rank_group WHERE rank_in(rank, :rank))
ORDER BY g.group_number, d.place

-- name: ranks_recorded
SELECT count(*) FROM rank_group

-- name: ranks_count
-- Ranks, those in groups, groups, the size of the largest, its representative and that one's peak.
SELECT (SELECT count(*) FROM rank), count(*), count(DISTINCT group_number), sum(group_number = 0),
  max(representative) FILTER (WHERE group_number = 0),
  (SELECT peak_allocated_bytes FROM life WHERE rank = (SELECT representative FROM rank_group WHERE group_number = 0 LIMIT 1)),
  (SELECT rank_ranges(rank) FROM rank WHERE rank NOT IN (SELECT rank FROM rank_group))
FROM rank_group

-- name: ranks_differences
-- Every fact in which a group differs from another one, in the order in which they are told; of groups with any of :rank.
-- :first: one a group. The other group's ranks: NULL where it is the largest one.
WITH member AS MATERIALIZED (
  SELECT g.group_number, count(*) AS ranks, rank_ranges(g.rank) AS list, min(g.representative) AS representative,
    iif(count(DISTINCT k.host) = 1, min(k.host), NULL) AS host
  FROM rank_group g JOIN rank k USING (rank) WHERE g.group_number > 0 GROUP BY g.group_number),
near AS MATERIALIZED (
  SELECT d.next_to AS group_number, rank_ranges(g.rank) AS list, count(*) AS ranks
  FROM rank_difference d JOIN rank_group g USING (group_number) WHERE d.place = 0 GROUP BY d.next_to)
SELECT m.group_number, m.list, m.ranks, m.representative, m.host, d.is_all_of, d.kind, d.bytes, d.bytes_per_step,
  d.category || coalesce('/' || d.detail, ''), d.module, d.phase, d.owner_bytes, d.since_step, d.last_step, d.steps, d.period,
  w.place, d.place, o.list, o.ranks, od.is_rest_of, d.is_rest_of, e.list, e.ranks
FROM member m JOIN rank_difference d USING (group_number) LEFT JOIN member o ON o.group_number = d.next_to
LEFT JOIN rank_difference od ON od.group_number = d.next_to AND od.place = 0
LEFT JOIN near e ON e.group_number = m.group_number
LEFT JOIN period_place w ON w.rank = m.representative AND w.period = d.period
WHERE (NOT :first OR d.place = 0) AND m.group_number IN (SELECT group_number FROM rank_group WHERE rank_in(rank, :rank))
ORDER BY m.group_number, d.place

-- name: ranks_difference_of
-- The same of the group of one rank alone, where there are more than two ranks.
WITH other AS (SELECT group_number, rank_ranges(rank) AS list, count(*) AS ranks FROM rank_group GROUP BY group_number)
SELECT g.group_number, '', 1, g.representative, NULL, NULL, d.kind, d.bytes, d.bytes_per_step,
  d.category || coalesce('/' || d.detail, ''), d.module, d.phase, d.owner_bytes, d.since_step, d.last_step, d.steps, d.period,
  w.place, d.place, o.list, o.ranks, od.is_rest_of, NULL, NULL, NULL
FROM rank_group g JOIN rank_difference d ON d.group_number = g.group_number AND d.place = 0
LEFT JOIN other o ON o.group_number = d.next_to AND d.next_to > 0
LEFT JOIN rank_difference od ON od.group_number = d.next_to AND od.place = 0
LEFT JOIN period_place w ON w.rank = g.representative AND w.period = d.period
WHERE g.rank = :rank AND (SELECT count(*) FROM rank_group) > 2

-- name: ranks_missing
-- How many ranks the job has (NULL: nobody said), and those that are not in the ledger.
SELECT (SELECT max(world_size) FROM rank), rank_ranges(first, last), coalesce(sum(last - first + 1), 0) FROM missing_ranks

-- name: ranks_by_host
SELECT k.host AS name, count(*), rank_ranges(k.rank), min(l.peak_allocated_bytes), max(l.peak_allocated_bytes),
  sum(l.peak_allocated_bytes), sum(g.base <> g.representative) AS differ, rank_ranges(iif(g.base <> g.representative, k.rank, NULL))
FROM rank k JOIN life l USING (rank) LEFT JOIN rank_group g USING (rank) WHERE rank_in(k.rank, :rank) GROUP BY k.host
ORDER BY differ DESC, min(k.rank)

-- name: ranks_by_communicator
SELECT coalesce(min(c.name), printf('0x%x', c.comm)), count(*), rank_ranges(c.rank), min(l.peak_allocated_bytes),
  max(l.peak_allocated_bytes), sum(l.peak_allocated_bytes), sum(g.base <> g.representative) AS differ,
  rank_ranges(iif(g.base <> g.representative, c.rank, NULL))
FROM (SELECT rank, comm, min(name) AS name FROM communicator GROUP BY rank, comm) c JOIN life l USING (rank)
LEFT JOIN rank_group g USING (rank) WHERE rank_in(c.rank, :rank) GROUP BY c.comm
ORDER BY differ * 1.0 / count(*) DESC, differ DESC, min(c.rank), count(*) DESC, 1

-- name: ranks_by_mesh
SELECT iif((SELECT max(mesh) FROM mesh) > 0, 'mesh ' || m.mesh || ': ', '') || m.dim || '=' || m.coordinate, count(*),
  rank_ranges(m.rank), min(l.peak_allocated_bytes), max(l.peak_allocated_bytes), sum(l.peak_allocated_bytes),
  sum(g.base <> g.representative) AS differ, rank_ranges(iif(g.base <> g.representative, m.rank, NULL))
FROM mesh m JOIN life l USING (rank) LEFT JOIN rank_group g USING (rank)
WHERE rank_in(m.rank, :rank) GROUP BY m.mesh, m.place, m.coordinate
ORDER BY m.mesh, differ = count(*) DESC, m.place, m.coordinate

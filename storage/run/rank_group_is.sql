-- Groups that are exactly the ranks of a host, of a coordinate of a device mesh, or of a communicator say so. A set of ranks
-- is a group where all of them are in it, and the group has no others. A communicator without a name is told only if nothing
-- else is.
WITH member AS (
  SELECT 0 AS kind, host AS id, 'host ' || host AS name, rank FROM rank WHERE host IS NOT NULL
  UNION ALL
  SELECT 1, mesh || ' ' || place || ' ' || coordinate, 'mesh ' || dim || '=' || coordinate, rank FROM mesh
  UNION ALL
  SELECT DISTINCT iif(name IS NULL, 3, 2), comm, 'communicator ' || coalesce(name, printf('0x%x', comm)), rank
  FROM communicator WHERE nranks > 1),
size AS MATERIALIZED (SELECT group_number, count(*) AS ranks FROM rank_group GROUP BY group_number),
sets AS (
  SELECT m.kind, min(m.name) AS name, count(*) AS ranks, count(g.rank) AS grouped, min(g.group_number) AS group_number,
    max(g.group_number) AS last_group
  FROM member m LEFT JOIN rank_group g USING (rank) GROUP BY m.kind, m.id),
found AS MATERIALIZED (
  SELECT t.kind, t.name, t.group_number FROM sets t JOIN size s USING (group_number)
  WHERE t.grouped = t.ranks AND t.last_group = t.group_number AND s.ranks = t.ranks)
UPDATE rank_difference SET is_all_of = (SELECT group_concat(name, ', ') FROM (
  SELECT DISTINCT name, kind FROM found f WHERE f.group_number = rank_difference.group_number
    AND (kind < 3 OR NOT EXISTS (SELECT 1 FROM found n WHERE n.group_number = f.group_number AND n.kind < 3))
  ORDER BY kind, name LIMIT 3))

-- Groups that are exactly the ranks of a host, of a coordinate of a device mesh, or of a communicator say so. A set of ranks
-- is a group where all of them are in it, and the group has no others; or where that is so of the group together with those
-- that are told next to it. A communicator without a name is told only if nothing else is.
WITH member AS (
  SELECT 0 AS kind, host AS id, 'host ' || host AS name, rank FROM rank WHERE host IS NOT NULL
  UNION ALL
  SELECT 1, mesh || ' ' || place || ' ' || coordinate, 'mesh ' || dim || '=' || coordinate, rank FROM mesh
  UNION ALL
  SELECT DISTINCT iif(name IS NULL, 3, 2), comm, 'communicator ' || coalesce(name, printf('0x%x', comm)), rank
  FROM communicator WHERE nranks > 1),
-- Of a group as it is, and with the groups that are told next to it.
family AS MATERIALIZED (
  SELECT group_number, 0 AS is_wide, rank FROM rank_group WHERE group_number > 0
  UNION ALL
  SELECT w.group_number, 1, g.rank
  FROM (SELECT DISTINCT next_to AS group_number FROM rank_difference WHERE next_to > 0) w JOIN rank_group g
    ON g.group_number = w.group_number
      OR g.group_number IN (SELECT group_number FROM rank_difference d WHERE d.next_to = w.group_number)),
size AS MATERIALIZED (SELECT group_number, is_wide, count(*) AS ranks FROM family GROUP BY group_number, is_wide),
sets AS MATERIALIZED (SELECT kind, id, min(name) AS name, count(*) AS ranks FROM member GROUP BY kind, id),
found AS MATERIALIZED (
  SELECT t.kind, t.name, f.group_number, f.is_wide
  FROM member m JOIN family f USING (rank) JOIN sets t USING (kind, id) GROUP BY m.kind, m.id, f.group_number, f.is_wide
  HAVING count(*) = t.ranks AND count(*) = (
    SELECT ranks FROM size s WHERE s.group_number = f.group_number AND s.is_wide = f.is_wide)),
told AS MATERIALIZED (
  SELECT DISTINCT kind, name, group_number, is_wide FROM found f WHERE kind < 3 OR NOT EXISTS (
    SELECT 1 FROM found n WHERE n.group_number = f.group_number AND n.is_wide = f.is_wide AND n.kind < 3))
UPDATE rank_difference SET
  is_all_of = (SELECT group_concat(name, ', ') FROM (
    SELECT name FROM told t WHERE t.group_number = rank_difference.group_number AND NOT is_wide ORDER BY kind, name LIMIT 3)),
  is_rest_of = (SELECT group_concat(name, ', ') FROM (
    SELECT name FROM told t WHERE t.group_number = rank_difference.group_number AND is_wide ORDER BY kind, name LIMIT 3))

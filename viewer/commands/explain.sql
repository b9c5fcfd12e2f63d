-- name: explain_story
-- Everything about the allocations that have this id, or (:by_address) any of this address, at :at or ever. The columns are
-- those of CSV and JSON, and the phase.
SELECT a.id, a.rank, a.device, a.address, a.bytes, a.requested_bytes, a.stream, a.pool, a.category, a.detail, a.name,
  n.name, a.step, a.alloc_ns, a.alloc_ns - s.start_ns, a.tid, (SELECT path FROM range_path WHERE id = a.phase_id),
  a.free_ns, (SELECT path FROM range_path WHERE id = a.free_phase_id), a.complete_ns, a.free_ns - a.alloc_ns, a.last_step,
  l.file || coalesce(':' || l.line, ''), l.function, l.operator_name, l.stack_of, a.site_step, t.full_path, a.note, a.decided_by, a.phase_id
FROM (
  SELECT * FROM allocation WHERE id = :number AND NOT :by_address
  UNION ALL
  SELECT * FROM allocation WHERE :by_address AND address <= :number AND address + bytes > :number
    AND (:at IS NULL OR (alloc_ns <= :at AND (free_ns IS NULL OR free_ns > :at)))) a
LEFT JOIN module_name n ON n.id = a.module_id LEFT JOIN step s ON s.rank = a.rank AND s.step = a.step
LEFT JOIN site_line l ON l.site_id = a.site_id LEFT JOIN stack_path t ON t.frame_id = l.frame_id
WHERE (:rank IS NULL OR rank_in(a.rank, :rank)) ORDER BY a.rank, a.id

-- name: explain_moment
SELECT step, start_ns, end_ns FROM step WHERE rank = :rank AND start_ns <= :at ORDER BY step DESC LIMIT 1

-- name: explain_gap
SELECT 1 FROM gap WHERE rank = :rank AND at_ns = :at AND reason LIKE '%dropped to make%'

-- name: explain_range_names
WITH RECURSIVE around(id, depth) AS (
  SELECT :from, 0
  UNION ALL
  SELECT p.parent_id, depth + 1 FROM around JOIN phase AS p ON p.id = around.id WHERE p.parent_id IS NOT NULL)
SELECT p.name FROM around JOIN phase AS p ON p.id = around.id ORDER BY depth

-- name: explain_module_name
SELECT m.fqn FROM allocation AS a JOIN module AS m ON m.id = a.module_id WHERE a.id = :from

-- name: explain_rules
SELECT value FROM meta WHERE key = 'rules'

-- name: explain_neighbours
-- Ids of a rank count its allocations in order, so that both searches end where they find enough.
SELECT o.place, o.id, o.bytes, o.category || coalesce('/' || o.detail, ''), n.name, o.step, o.free_ns - o.alloc_ns
FROM (
    SELECT *
    FROM (
        SELECT 'before' AS place, * FROM allocation
        WHERE id < :id AND rank = :rank AND device = :device AND address < :end AND address + bytes > :start
        ORDER BY id DESC LIMIT :limit)
    UNION ALL
    SELECT *
    FROM (
        SELECT 'after' AS place, * FROM allocation
        WHERE id > :id AND rank = :rank AND device = :device AND address < :end AND address + bytes > :start ORDER BY id
        LIMIT :limit)) AS o LEFT JOIN module_name AS n ON n.id = o.module_id ORDER BY o.id

-- name: explain_left_out
SELECT EXISTS(SELECT 1 FROM step WHERE same_as IS NOT NULL)

-- One by one: the allocations of the drawn ranks, as 'shardledger explain' tells of them, and PyTorch's segments.

-- name: allocations_make
-- Of each rank as many as there is room for, :rows of all ranks together: those that were alive at the peaks and refused requests
-- that people look at first, then the largest.
CREATE TEMP TABLE told AS
WITH moment AS MATERIALIZED (
  SELECT l.rank, own.peak_ns AS at_ns FROM life l JOIN drawn d ON d.rank = l.rank
  JOIN period_place w ON w.rank = l.rank AND w.period IN (l.peak_period, l.highest_step_period)
  JOIN period own ON own.rank = l.rank AND own.period = w.rows_of
  UNION
  SELECT o.rank, o.at_ns FROM main.oom o JOIN drawn d ON d.rank = o.rank)
SELECT id, rank FROM (
  SELECT a.id, a.rank, row_number() OVER (PARTITION BY a.rank ORDER BY EXISTS (SELECT 1 FROM moment m WHERE m.rank = a.rank
    AND a.alloc_ns <= m.at_ns AND coalesce(a.free_ns > m.at_ns, 1)) DESC, a.bytes DESC, a.id) AS place
  FROM drawn d JOIN rank k ON k.rank = d.rank JOIN allocation a ON a.rank = d.rank AND a.device IS coalesce(k.device, 0))
WHERE place <= max(200, :rows / (SELECT count(*) FROM drawn))

-- name: allocations
-- gone: its free_ns is where the record begins to miss something, so that it was freed then or later.
SELECT a.rank, a.id, a.address, a.bytes, a.requested_bytes AS requested, a.stream, a.pool, a.category, a.detail, a.name, a.module_id AS module,
  a.alloc_ns - :zero AS alloc, a.free_ns - :zero AS free, a.complete_ns - :zero AS complete, a.tid, a.phase_id AS phase,
  a.free_phase_id AS free_phase, a.site_id AS site, a.site_step, a.note, a.decided_by,
  EXISTS (SELECT 1 FROM gap g WHERE g.rank = a.rank AND g.at_ns = a.free_ns AND g.reason LIKE '%dropped to make%') AS gone
FROM told t JOIN allocation a ON a.id = t.id WHERE t.rank = :rank ORDER BY a.alloc_ns, a.id

-- name: allocation_counts
SELECT k.rank, count(*) AS count, sum(a.bytes) AS bytes, (SELECT count(*) FROM told t WHERE t.rank = k.rank) AS told FROM rank k
JOIN allocation a ON a.rank = k.rank AND a.device IS coalesce(k.device, 0) WHERE k.rank = :rank GROUP BY k.rank

-- name: allocation_phases
-- The ranges around each, from outside to inside.
SELECT p.id, p.path FROM range_path p WHERE p.id IN (
  SELECT a.phase_id FROM told t JOIN allocation a ON a.id = t.id UNION SELECT a.free_phase_id FROM told t JOIN allocation a ON a.id = t.id)
ORDER BY p.id

-- name: allocation_sites
SELECT l.site_id AS id, l.file || coalesce(':' || l.line, '') AS line, l.function, l.operator_name AS operator, l.stack_of,
  s.path AS stack FROM site_line l LEFT JOIN stack_path s ON s.frame_id = l.frame_id
WHERE l.site_id IN (SELECT a.site_id FROM told t JOIN allocation a ON a.id = t.id) ORDER BY l.site_id

-- name: page_segments
-- What the driver gave PyTorch; none of a rank that has more than there is room for.
SELECT s.rank, s.address, s.bytes, coalesce(s.stream, 0) AS stream, s.api LIKE '%map%' AS mapped, s.alloc_ns - :zero AS alloc,
  s.free_ns - :zero AS free FROM segment s JOIN rank k ON k.rank = s.rank
WHERE s.rank = :rank AND s.device IS coalesce(k.device, 0) AND s.owner = 'pytorch' AND s.bytes > 0
  AND (SELECT count(*) FROM segment n WHERE n.rank = :rank AND n.owner = 'pytorch') <= 20000 / (SELECT count(*) FROM drawn)
ORDER BY s.address, s.alloc_ns

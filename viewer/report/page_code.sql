-- Where in the code memory was asked for: the moments of the report whose sites are in the page, and these.

-- name: page_code_ranks
SELECT count(*) FROM drawn WHERE EXISTS (SELECT 1 FROM site s WHERE s.rank = drawn.rank)

-- name: page_code_growth_make
-- Of the owners that grow (owner_growth), what was made since its from_step and is alive at the end of its to_step.
CREATE TEMP TABLE code_growth AS
WITH grown AS MATERIALIZED (
  SELECT o.*, e.period AS early_period, l.period AS last_period FROM owner_growth o
  JOIN step e ON e.rank = o.rank AND e.step = o.from_step JOIN step l ON l.rank = o.rank AND l.step = o.to_step
  WHERE o.grows AND o.rank IN (SELECT rank FROM drawn) AND EXISTS (SELECT 1 FROM site s WHERE s.rank = o.rank)),
made AS MATERIALIZED (
  SELECT s.rank, a.category, a.detail, a.module_id, a.phase_id, a.site_id, a.bytes
  FROM (SELECT DISTINCT rank, early_period, last_period, to_step FROM grown) s
  CROSS JOIN allocation a ON a.rank = s.rank AND a.last_step >= s.to_step
  JOIN rank r ON r.rank = s.rank AND a.device = r.device WHERE a.period > s.early_period AND a.period <= s.last_period),
made_in AS MATERIALIZED (
  SELECT n.id, n.kind FROM (SELECT DISTINCT phase_id AS id FROM made) asked JOIN phase_named n ON n.id = asked.id)
SELECT m.rank, g.from_step, g.to_step, m.site_id, m.category, m.module_id, sum(m.bytes) AS bytes, count(*) AS allocations
FROM made m LEFT JOIN made_in f ON f.id = m.phase_id
JOIN grown g ON g.rank = m.rank AND g.category = m.category AND g.detail IS m.detail AND g.module_id IS m.module_id
  AND g.phase IS f.kind
GROUP BY m.rank, m.site_id, m.category, m.module_id

-- name: page_code_moments_make
-- The highest point of each period, refused requests, and growth. wanted: its sites are in the page, which has room for :rows of
-- all ranks: those of the life's peak, then of the highest step and the last refused requests, then of the steps that are
-- always held, then of the highest periods. other: of a refusal what was asked for, of growth how much its owners grew.
CREATE TEMP TABLE code_moment AS
WITH sited AS (SELECT rank FROM drawn WHERE EXISTS (SELECT 1 FROM site s WHERE s.rank = drawn.rank)),
moment AS (
  SELECT p.rank, 'peak' AS kind, p.period AS number, w.rows_of, p.start_ns, p.peak_ns AS at_ns, p.peak_allocated_bytes AS bytes,
    w.step, iif(w.step IS NULL, w.place, NULL) AS place, NULL AS other, NULL AS site_id,
    CASE WHEN p.period = l.peak_period THEN 0 WHEN p.period = l.highest_step_period THEN 1 WHEN p.kind = 'setup' THEN 2
      WHEN w.step IN (SELECT h.step FROM held h WHERE h.rank = p.rank) THEN 2 ELSE 3 END AS priority
  FROM sited k CROSS JOIN period p ON p.rank = k.rank JOIN period_place w ON w.rank = p.rank AND w.period = p.period
  JOIN life l ON l.rank = p.rank WHERE p.peak_allocated_bytes IS NOT NULL
  UNION ALL
  SELECT o.rank, 'refused', 0, o.at_ns, o.at_ns, o.at_ns, o.allocated_bytes, o.step, NULL, o.requested_bytes, o.site_id,
    iif(row_number() OVER (PARTITION BY o.rank ORDER BY o.at_ns DESC) <= 3, 1, 3)
  FROM sited k CROSS JOIN main.oom o ON o.rank = k.rank WHERE o.allocated_bytes IS NOT NULL
  UNION ALL
  SELECT g.rank, 'growth', g.to_step, g.to_step, e.end_ns, l.end_ns, sum(g.bytes), g.to_step, 'since the end of step ' || g.from_step,
    (SELECT sum(o.bytes) FROM owner_growth o WHERE o.rank = g.rank AND o.grows), NULL, 0
  FROM code_growth g JOIN step e ON e.rank = g.rank AND e.step = g.from_step JOIN step l ON l.rank = g.rank AND l.step = g.to_step
  GROUP BY g.rank),
counted AS (
  SELECT rank, 'peak' AS kind, period AS rows_of, count(*) AS count FROM peak_site GROUP BY rank, period
  UNION ALL
  SELECT rank, 'refused', at_ns, count(*) FROM oom_site GROUP BY rank, at_ns
  UNION ALL
  SELECT rank, 'growth', to_step, count(*) FROM code_growth GROUP BY rank, to_step),
placed AS (
  SELECT c.rank, c.kind, c.rows_of, m.priority, sum(c.count) OVER (ORDER BY m.priority, m.bytes DESC, c.rank, c.kind, c.rows_of)
    AS rows_until
  FROM (SELECT rank, kind, rows_of, min(priority) AS priority, max(bytes) AS bytes FROM moment GROUP BY rank, kind, rows_of) m
  JOIN counted c ON c.rank = m.rank AND c.kind = m.kind AND c.rows_of = m.rows_of)
SELECT m.*, p.rows_of IS NOT NULL AND (p.priority = 0 OR p.rows_until <= :rows) AS wanted
FROM moment m LEFT JOIN placed p ON p.rank = m.rank AND p.kind = m.kind AND p.rows_of = m.rows_of

-- name: page_code_moments
SELECT kind, number, rows_of, wanted, start_ns - :zero, at_ns - :zero, bytes, step, place, other, site_id FROM code_moment
WHERE rank = :rank ORDER BY kind, start_ns, number

-- name: page_code_rows
-- The sites of a moment.
SELECT site_id, category, module_id, bytes, allocations FROM peak_site WHERE :kind = 'peak' AND rank = :rank AND period = :number
UNION ALL
SELECT site_id, category, module_id, bytes, allocations FROM oom_site WHERE :kind = 'refused' AND rank = :rank AND at_ns = :number
UNION ALL
SELECT site_id, category, module_id, bytes, allocations FROM code_growth WHERE :kind = 'growth' AND rank = :rank
ORDER BY site_id, category, module_id, bytes DESC

-- name: page_code_site
SELECT frame_id, line_id, coalesce(operator_name, ''), coalesce(stack_of, '') FROM site WHERE id = :site

-- name: page_code_stack
-- Its frames, the outermost first.
WITH RECURSIVE up(id, place) AS (
  SELECT :frame, 0
  UNION ALL
  SELECT f.caller_id, up.place + 1 FROM up JOIN frame f ON f.id = up.id WHERE f.caller_id IS NOT NULL AND up.place < 999)
SELECT f.id, f.file, coalesce(f.line, 0), f.function, f.code_of FROM up JOIN frame f ON f.id = up.id ORDER BY up.place DESC

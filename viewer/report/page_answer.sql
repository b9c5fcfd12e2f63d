-- The first screen's moment, what was allocated then, and what the device held.

-- name: answer_make
-- One row, or none where no allocation is known. at_ns: the rows' own instant; of a peak in a period that repeats another one it
-- is that of the other, and shown_ns is the period's own. end_ns: of the period whose rows they are.
CREATE TEMP TABLE answer AS
SELECT :rank AS rank, 'refused' AS kind, o.step, NULL AS period, NULL AS rows_of, o.at_ns, o.at_ns AS shown_ns, NULL AS end_ns,
  o.allocated_bytes, o.reserved_bytes, o.largest_free_bytes, NULL AS period_kind, NULL AS place
FROM main.oom o WHERE :dead AND o.rank = :rank AND o.at_ns = :at
UNION ALL
SELECT * FROM (
  SELECT l.rank, 'peak', c.step, c.period, c.rows_of, own.peak_ns, c.peak_ns, own.end_ns, c.peak_allocated_bytes, NULL, NULL,
    c.kind, c.place
  FROM life l JOIN period_peak c ON c.rank = l.rank AND c.period = l.peak_period
  JOIN period own ON own.rank = l.rank AND own.period = c.rows_of
  WHERE NOT :dead ORDER BY l.peak_allocated_bytes DESC, l.rank LIMIT 1)

-- name: answer_alive_make
-- What was allocated at a peak, by owner. freed: in the period of the peak; NULL where that is the whole job, at whose end all is
-- freed. grows: of owners that grow, and not freed in it; the others outlive it.
CREATE TEMP TABLE answer_alive AS
WITH alive AS MATERIALIZED (
  SELECT a.category, a.detail, a.module_id, a.phase_id, a.bytes, w.period_kind <> 'whole' AND a.free_ns IS NOT NULL AND a.free_ns <= w.end_ns AS freed
  FROM answer w JOIN rank r ON r.rank = w.rank
  JOIN allocation a ON a.rank = w.rank AND a.device = r.device AND a.alloc_ns <= w.at_ns AND coalesce(a.free_ns > w.at_ns, 1)
  WHERE w.kind = 'peak'),
made_in AS MATERIALIZED (
  SELECT n.id, n.kind FROM (SELECT DISTINCT phase_id AS id FROM alive) asked JOIN phase_named n ON n.id = asked.id),
grown AS MATERIALIZED (
  SELECT category, detail, module_id, phase FROM owner_growth WHERE grows AND rank = (SELECT rank FROM answer)
  UNION
  SELECT category, detail, module_id, phase FROM owner_growth_by_call WHERE grows AND rank = (SELECT rank FROM answer))
SELECT a.category, a.detail, a.module_id, sum(a.bytes) AS bytes, count(*) AS allocations,
  iif((SELECT period_kind FROM answer) = 'whole', NULL, coalesce(sum(a.bytes) FILTER (WHERE a.freed), 0)) AS freed,
  coalesce(sum(a.bytes) FILTER (WHERE NOT a.freed AND g.category IS NOT NULL), 0) AS grows
FROM alive a LEFT JOIN made_in m ON m.id = a.phase_id
LEFT JOIN grown g ON g.category = a.category AND g.detail IS a.detail AND g.module_id IS a.module_id AND g.phase IS m.kind
GROUP BY a.category, a.detail, a.module_id

-- name: answer_moment
SELECT w.rank, coalesce(r.device, 0), w.at_ns, w.allocated_bytes FROM answer w JOIN rank r ON r.rank = w.rank

-- name: answer_at
SELECT w.rank, w.kind, w.step, w.shown_ns - :zero - k.offset_ns AS at, w.allocated_bytes AS allocated, w.period_kind, w.place,
  (SELECT count(*) FROM life l WHERE l.peak_allocated_bytes IS NOT NULL) AS ranks,
  (SELECT count(*) FROM life l WHERE l.peak_allocated_bytes = (SELECT max(peak_allocated_bytes) FROM life)) AS equal
FROM answer w JOIN page_clock k ON k.rank = w.rank

-- name: answer_owners
-- With what became of it where the allocations say the same as the peak's own rows, which hold what was known then (a tag that
-- came later is not in them); else without.
WITH at_peak AS MATERIALIZED (
  SELECT c.category, c.bytes FROM answer w JOIN category_at_peak c ON c.rank = w.rank AND c.period = w.period WHERE c.bytes <> 0),
summed AS MATERIALIZED (SELECT category, sum(bytes) AS bytes FROM answer_alive GROUP BY category),
same AS MATERIALIZED (
  SELECT NOT EXISTS (SELECT * FROM at_peak EXCEPT SELECT * FROM summed) AND NOT EXISTS (SELECT * FROM summed EXCEPT SELECT * FROM at_peak)
    AS agree)
SELECT category, detail, module_id AS module, bytes, allocations, freed, grows FROM answer_alive WHERE (SELECT agree FROM same)
UNION ALL
SELECT o.category, o.detail, o.module_id, sum(o.bytes), sum(o.allocations), NULL, NULL FROM answer w
JOIN peak_owner o ON o.rank = w.rank AND o.period = w.rows_of WHERE w.kind = 'peak' AND NOT (SELECT agree FROM same)
GROUP BY o.category, o.detail, o.module_id
UNION ALL
SELECT o.category, o.detail, o.module_id, sum(o.bytes), sum(o.allocations), NULL, NULL FROM answer w
JOIN oom_owner o ON o.rank = w.rank AND o.at_ns = w.at_ns WHERE w.kind = 'refused' GROUP BY o.category, o.detail, o.module_id
ORDER BY 4 DESC, 1, 2, 3

-- name: answer_sample
-- The sample of the device that is nearest to the moment.
SELECT d.at_ns - :zero - k.offset_ns AS at, d.at_ns - w.at_ns AS apart_ns, d.total_bytes AS total, d.used_bytes AS used
FROM answer w JOIN rank r ON r.rank = w.rank JOIN page_clock k ON k.rank = w.rank
JOIN device_sample d ON d.rank = w.rank AND d.device = r.device ORDER BY abs(d.at_ns - w.at_ns), d.at_ns LIMIT 1

-- name: answer_device
-- Who held what in it. part: pytorch's own is known better where its segments are.
WITH sample AS (
  SELECT d.rank, d.device, d.at_ns FROM answer w JOIN rank r ON r.rank = w.rank
  JOIN device_sample d ON d.rank = w.rank AND d.device = r.device ORDER BY abs(d.at_ns - w.at_ns), d.at_ns LIMIT 1)
SELECT b.owner, b.bytes, CASE WHEN b.owner IN ('allocated', 'cublas_workspace', 'pending', 'cached', 'private_pools') THEN 'pytorch'
    WHEN b.owner = 'nccl' THEN 'nccl' WHEN b.owner = 'other_processes' THEN 'others' WHEN b.owner = 'unexplained' THEN 'unexplained'
    ELSE 'context' END AS part
FROM sample s JOIN device_balance b ON b.rank = s.rank AND b.device = s.device AND b.at_ns = s.at_ns
WHERE b.owner <> 'used' AND b.bytes <> 0 ORDER BY b.bytes DESC, b.owner

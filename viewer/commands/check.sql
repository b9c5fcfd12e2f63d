-- name: check_peak
-- The highest point of all lives; in words where it is, of a step with the phase.
SELECT l.rank, l.place || coalesce(', ' || w.place, ''), l.peak_allocated_bytes
FROM life_peak l LEFT JOIN peak_place w ON w.rank = l.rank AND w.step = l.step
WHERE l.peak_allocated_bytes IS NOT NULL ORDER BY l.peak_allocated_bytes DESC, l.rank LIMIT 1

-- name: check_step_peak
SELECT c.rank, 'step ' || c.step || ', ' || w.place, c.peak_allocated_bytes
FROM shown_step c JOIN peak_place w USING (rank, step)
WHERE asked IS NULL ORDER BY c.peak_allocated_bytes DESC, c.rank LIMIT 1

-- name: check_over
-- Which ranks' lives have a peak above :limit, and how many there are.
SELECT count(*), rank_ranges(rank) FROM life WHERE peak_allocated_bytes > :limit

-- name: check_over_in_steps
SELECT count(*), rank_ranges(rank) FROM shown_step WHERE asked IS NULL AND peak_allocated_bytes > :limit

-- name: check_category_is_known
SELECT 1 FROM peak_category WHERE category = :category LIMIT 1

-- name: check_category
SELECT h.rank, (SELECT iif(w.kind = 'step', 'of ', '') || w.place FROM period_place w WHERE w.rank = h.rank
  AND w.period = h.period), h.bytes
FROM (SELECT c.rank, c.period, c.bytes FROM peak_category c JOIN period p ON p.rank = c.rank AND p.period = c.period
    AND p.kind = c.phase
  WHERE c.category = :category AND c.module_id IS NULL ORDER BY c.bytes DESC, c.rank, c.period LIMIT 1) h

-- name: check_steps
SELECT coalesce(min(steps), 0) FROM whole_steps

-- name: check_difference
WITH parts(category, bytes) AS (
  SELECT c.category, c.bytes FROM main.life l JOIN main.category_at_peak c ON c.rank = l.rank AND c.period = l.peak_period
  WHERE l.rank = :rank
  UNION ALL
  SELECT c.category, -c.bytes FROM base.life l JOIN base.category_at_peak c ON c.rank = l.rank AND c.period = l.peak_period
  WHERE l.rank = :rank)
SELECT category, sum(bytes) AS more FROM parts GROUP BY category HAVING more > 0
ORDER BY more DESC LIMIT 3

-- name: check_strangers
SELECT (SELECT count(*) FROM main.rank WHERE rank NOT IN (SELECT rank FROM base.rank)) + (SELECT count(*) FROM base.rank
  WHERE rank NOT IN (SELECT rank FROM main.rank))

-- name: check_against
SELECT a.rank, a.peak_allocated_bytes, b.peak_allocated_bytes
FROM main.life a JOIN base.life b ON b.rank = a.rank ORDER BY a.rank

-- name: check_has_peaks
SELECT EXISTS(SELECT 1 FROM life WHERE peak_allocated_bytes IS NOT NULL)

-- name: check_missing
-- How many ranks are there, of how many, and which are not; no row where all are.
SELECT (SELECT count(*) FROM rank), (SELECT max(world_size) FROM rank), rank_ranges(first, last) FROM missing_ranks
HAVING count(*) > 0

-- name: check_peak
SELECT c.rank, c.step, c.peak_allocated_bytes, w.place FROM shown_step c JOIN peak_place w USING (rank, step)
WHERE asked IS NULL ORDER BY c.peak_allocated_bytes DESC, c.rank LIMIT 1

-- name: check_category_is_known
SELECT 1 FROM peak_category WHERE category = :category LIMIT 1

-- name: check_category
SELECT rank, step, bytes FROM peak_category WHERE category = :category AND module_id IS NULL AND phase = 'step'
ORDER BY bytes DESC, rank, step LIMIT 1

-- name: check_steps
SELECT coalesce(min(steps), 0) FROM rank_steps

-- name: check_difference
WITH highest AS (
  SELECT (
      SELECT coalesce(same_as, step) FROM main.step WHERE rank = :rank ORDER BY peak_allocated_bytes DESC, step LIMIT 1)
    AS now, (
      SELECT coalesce(same_as, step) FROM base.step WHERE rank = :rank ORDER BY peak_allocated_bytes DESC, step LIMIT 1)
    AS before),
parts(category, bytes) AS (
  SELECT category, bytes FROM main.peak_category, highest
  WHERE rank = :rank AND step = now AND module_id IS NULL AND phase = 'step'
  UNION ALL
  SELECT category, -bytes FROM base.peak_category, highest
  WHERE rank = :rank AND step = before AND module_id IS NULL AND phase = 'step')
SELECT category, sum(bytes) AS more FROM parts GROUP BY category HAVING more > 0 ORDER BY more DESC LIMIT 3

-- name: check_strangers
SELECT (SELECT count(*) FROM main.rank WHERE rank NOT IN (SELECT rank FROM base.rank)) + (SELECT count(*) FROM base.rank
  WHERE rank NOT IN (SELECT rank FROM main.rank))

-- name: check_against
SELECT k.rank, (SELECT max(peak_allocated_bytes) FROM main.step AS a WHERE a.rank = k.rank), (
    SELECT max(peak_allocated_bytes) FROM base.step AS b WHERE b.rank = k.rank) FROM main.rank_steps AS k
ORDER BY k.rank

-- name: check_has_peaks
SELECT EXISTS(SELECT 1 FROM step WHERE peak_allocated_bytes IS NOT NULL)

-- name: check_growth
SELECT rank, sum(growth) OVER (PARTITION BY rank) AS total, growth, category, module, phase FROM growth WHERE growth > 0
ORDER BY total DESC, rank, growth DESC

-- Which ranks of a run differ from the others, in what, and since when: shardledger.lake.different, over the views of
-- views.duckdb.sql. at_least: bytes below which ranks are alike. A rank is held against the median of each step's peaks, and
-- what it holds at its largest difference against the lowest rank that is at the median there. A table is read once: it may be
-- a thousand files. grouped: one ledger has compared all ranks with each other (docs/ranks.md), and what it found is told instead.
WITH
process AS MATERIALIZED (SELECT rank, host, world_size FROM rank),
steps AS MATERIALIZED (
  SELECT rank, step, coalesce(same_as, period) AS rows_of, peak_allocated_bytes AS bytes FROM period WHERE kind = 'step'),
peaks AS (SELECT * FROM steps WHERE bytes IS NOT NULL),
median AS (SELECT step, quantile_disc(bytes, 0.5) AS bytes FROM peaks GROUP BY step),
typical AS MATERIALIZED (
  SELECT m.step, m.bytes, min_by(p.rank, p.rank) AS rank, min_by(p.rows_of, p.rank) AS rows_of
  FROM median m JOIN peaks p ON p.step = m.step AND p.bytes = m.bytes GROUP BY m.step, m.bytes),
apart AS (
  SELECT p.rank, p.step, p.rows_of, p.bytes - t.bytes AS bytes FROM peaks p JOIN typical t ON t.step = p.step
  WHERE abs(p.bytes - t.bytes) >= getvariable('at_least') AND NOT getvariable('grouped')),
-- A difference that grew with each step is a growth, whose last step tells how far.
moves AS (SELECT *, bytes - lag(bytes) OVER (PARTITION BY rank ORDER BY step) AS more FROM apart),
outlier AS MATERIALIZED (
  SELECT rank, min(step) AS since_step, arg_max(step, (abs(bytes), -step)) AS step, arg_max(rows_of, (abs(bytes), -step))
    AS rows_of, arg_max(bytes, (abs(bytes), -step)) AS bytes,
    CASE WHEN count(more) >= 2 AND min(more) > 0 THEN (max(bytes) - min(bytes)) // (max(step) - min(step)) END AS per_step_bytes
  FROM moves GROUP BY rank),
-- What it holds there, and the typical rank less, by owner.
compared AS MATERIALIZED (
  SELECT rank AS outlier, rank, rows_of, 1 AS sign FROM outlier
  UNION ALL
  SELECT o.rank, t.rank, t.rows_of, -1 FROM outlier o JOIN typical t ON t.step = o.step),
held AS (
  SELECT c.outlier AS rank, p.category, coalesce(p.detail, '') AS detail, p.module_id, coalesce(p.phase, '') AS phase,
    p.bytes * c.sign AS bytes
  FROM compared c JOIN peak_owner p ON p.rank = c.rank AND p.period = c.rows_of),
owned AS (
  SELECT h.rank, h.category, h.detail, coalesce(m.fqn, '') AS module, h.phase, sum(h.bytes)::BIGINT AS bytes
  FROM held h LEFT JOIN module m ON m.id = h.module_id GROUP BY ALL),
most AS (
  SELECT w.rank, arg_max(w, (w.bytes * sign(o.bytes), w.category, w.module)) AS owner
  FROM owned w JOIN outlier o ON o.rank = w.rank GROUP BY w.rank),
-- Who stopped before the others, and who was never recorded.
last AS (SELECT rank, max(step) AS step FROM steps GROUP BY rank),
job AS (SELECT max(world_size) AS ranks FROM process),
found AS (
  SELECT o.rank, m.owner.category AS what, m.owner.module AS module, m.owner.phase AS phase, o.bytes, o.per_step_bytes,
    o.since_step, o.bytes // greatest(getvariable('at_least'), 1) AS alike, NULL::BIGINT AS next_to
  FROM outlier o LEFT JOIN most m ON m.rank = o.rank
  UNION ALL
  SELECT g.rank, d.category || coalesce('/' || d.detail, ''), coalesce(d.module, ''), coalesce(d.phase, ''), d.bytes, d.bytes_per_step,
    d.since_step, (g.group_number * 100 + d.place)::BIGINT, nullif(d.next_to, 0)
  FROM rank_group g JOIN rank_difference d ON d.group_number = g.group_number
  WHERE getvariable('grouped') AND (abs(d.bytes) >= getvariable('at_least') OR d.kind = 'growth')
  UNION ALL
  SELECT rank, 'stopped after step ' || step, NULL, NULL, NULL, NULL, step, NULL, NULL FROM last
  WHERE step < (SELECT max(step) FROM last)
  UNION ALL
  SELECT r.range, 'not recorded', NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT unnest(range(ranks)) AS range FROM job) r WHERE r.range NOT IN (SELECT rank FROM process)),
grouped AS (
  SELECT list(f.rank ORDER BY f.rank) AS ranks, coalesce(list(DISTINCT r.host ORDER BY r.host) FILTER (WHERE r.host IS NOT NULL), [])
    AS hosts, max_by(f.bytes, abs(f.bytes)) AS bytes, f.per_step_bytes, f.since_step, f.what, f.module, f.phase,
    any_value(f.next_to) AS next_to
  FROM found f LEFT JOIN process r ON r.rank = f.rank
  GROUP BY f.alike, f.per_step_bytes, f.since_step, f.what, f.module, f.phase)
SELECT ranks, hosts, len(hosts) > 0 AND len(ranks) = (SELECT count(*) FROM process r WHERE r.host IN (SELECT unnest(g.hosts)))
  AND len(ranks) > 1 AS whole_hosts, bytes, per_step_bytes, since_step, what, module, phase,
  (SELECT list(r.rank ORDER BY r.rank) FROM rank_group r WHERE r.group_number = g.next_to) AS next_to
FROM grouped g ORDER BY abs(bytes) DESC NULLS LAST, ranks;

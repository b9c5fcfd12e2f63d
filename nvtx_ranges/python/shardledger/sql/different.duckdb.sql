-- Which ranks of a run differ from the others, in what, and since when: shardledger.lake.different, over the views of
-- views.duckdb.sql. at_least: bytes below which ranks are alike. A rank is held against the median of each step's peaks, of all
-- ranks or of its kind, and what it holds at its largest difference against the lowest rank that is at the median there. A table is
-- read once: it may be a thousand files. grouped: one ledger has compared all ranks with each other (docs/ranks.md), and what it
-- found is told instead.
WITH
process AS MATERIALIZED (SELECT rank, host, world_size FROM rank),
steps AS MATERIALIZED (
  SELECT rank, step, coalesce(same_as, period) AS rows_of, peak_allocated_bytes AS bytes FROM period WHERE kind = 'step'),
peaks AS (SELECT * FROM steps WHERE bytes IS NOT NULL AND NOT getvariable('grouped')),
-- Kinds of ranks: all of them, or the coordinates of a dimension of a device mesh that all ranks are in, of four ranks at least, as a
-- pipeline's stages.
dims AS (
  SELECT '' AS dim, rank, 0 AS kind FROM process
  UNION ALL
  SELECT mesh || ' ' || place, rank, coordinate FROM mesh),
large AS (
  SELECT dim FROM (SELECT dim, kind, count(*) AS ranks FROM dims GROUP BY dim, kind) GROUP BY dim
  HAVING dim = '' OR (min(ranks) >= 4 AND sum(ranks) = (SELECT count(*) FROM process))),
medians AS MATERIALIZED (
  SELECT d.dim, d.kind, p.step, quantile_disc(p.bytes, 0.5) AS bytes
  FROM dims d JOIN large USING (dim) JOIN peaks p ON p.rank = d.rank GROUP BY d.dim, d.kind, p.step),
-- A dimension is taken where half as many peaks or fewer are off the median of their kind as off that of all.
off AS (
  SELECT d.dim, count(*) FILTER (WHERE abs(p.bytes - m.bytes) >= getvariable('at_least')) AS peaks
  FROM dims d JOIN peaks p ON p.rank = d.rank JOIN medians m ON m.dim = d.dim AND m.kind = d.kind AND m.step = p.step GROUP BY d.dim),
chosen AS MATERIALIZED (
  SELECT coalesce(min_by(dim, (peaks, dim)) FILTER (WHERE peaks * 2 <= (SELECT peaks FROM off WHERE dim = '')
    AND (SELECT peaks FROM off WHERE dim = '') > 0), '') AS dim FROM off),
kinds AS MATERIALIZED (SELECT d.rank, d.kind, d.dim FROM dims d JOIN chosen USING (dim)),
typical AS MATERIALIZED (
  SELECT m.dim, m.kind, m.step, m.bytes, min(p.rank) AS rank, min_by(p.rows_of, p.rank) AS rows_of
  FROM medians m JOIN dims d ON d.dim = m.dim AND d.kind = m.kind JOIN peaks p ON p.rank = d.rank AND p.step = m.step AND p.bytes = m.bytes
  WHERE m.dim = (SELECT dim FROM chosen) GROUP BY m.dim, m.kind, m.step, m.bytes),
-- Of several kinds the one in the middle.
usual AS MATERIALIZED (
  SELECT kind FROM typical WHERE dim <> '' GROUP BY kind ORDER BY sum(bytes), kind
  LIMIT 1 OFFSET (SELECT (count(DISTINCT kind) - 1) // 2 FROM typical WHERE dim <> '')),
-- Who differs: a rank from its kind, and a kind, as -1 - kind, from the usual one.
apart AS (
  SELECT p.rank AS who, k.kind AS next_to, p.rank, p.rows_of, p.step, p.bytes - t.bytes AS bytes, t.rank AS typical_rank,
    t.rows_of AS typical_rows
  FROM peaks p JOIN kinds k ON k.rank = p.rank JOIN typical t ON t.dim = k.dim AND t.kind = k.kind AND t.step = p.step
  UNION ALL
  SELECT -1 - t.kind, u.kind, t.rank, t.rows_of, t.step, t.bytes - a.bytes, a.rank, a.rows_of
  FROM typical t CROSS JOIN usual u JOIN typical a ON a.dim = t.dim AND a.kind = u.kind AND a.step = t.step WHERE t.dim <> ''),
-- A difference that grew with each step is a growth, whose last step tells how far.
moves AS (
  SELECT *, bytes - lag(bytes) OVER (PARTITION BY who ORDER BY step) AS more FROM apart WHERE abs(bytes) >= getvariable('at_least')),
outlier AS MATERIALIZED (
  SELECT who, any_value(next_to) AS next_to, min(step) AS since_step,
    arg_max({'rank': rank, 'rows_of': rows_of, 'typical_rank': typical_rank, 'typical_rows': typical_rows}, (abs(bytes), -step)) AS most,
    arg_max(bytes, (abs(bytes), -step)) AS bytes,
    CASE WHEN count(more) >= 2 AND min(more) > 0 THEN (max(bytes) - min(bytes)) // (max(step) - min(step)) END AS per_step_bytes
  FROM moves GROUP BY who),
-- What it holds there, and the typical rank less, by owner.
compared AS MATERIALIZED (
  SELECT who, most.rank AS rank, most.rows_of AS rows_of, 1 AS sign FROM outlier
  UNION ALL
  SELECT who, most.typical_rank, most.typical_rows, -1 FROM outlier),
held AS (
  SELECT c.who, p.category, coalesce(p.detail, '') AS detail, p.module_id, coalesce(p.phase, '') AS phase,
    p.bytes * c.sign AS bytes
  FROM compared c JOIN peak_owner p ON p.rank = c.rank AND p.period = c.rows_of),
owned AS (
  SELECT h.who, h.category, h.detail, coalesce(m.fqn, '') AS module, h.phase, sum(h.bytes)::BIGINT AS bytes
  FROM held h LEFT JOIN module m ON m.id = h.module_id GROUP BY ALL),
most AS (
  SELECT w.who, arg_max(w, (w.bytes * sign(o.bytes), w.category, w.module)) AS owner
  FROM owned w JOIN outlier o ON o.who = w.who GROUP BY w.who),
-- Who stopped before the others, and who was never recorded.
last AS (SELECT rank, max(step) AS step FROM steps GROUP BY rank),
job AS (SELECT max(world_size) AS ranks FROM process),
found AS (
  SELECT coalesce(k.rank, o.who) AS rank, m.owner.category AS what, m.owner.module AS module, m.owner.phase AS phase, o.bytes,
    o.per_step_bytes, o.since_step, o.bytes // greatest(getvariable('at_least'), 1) AS alike,
    CASE WHEN (SELECT dim FROM chosen) <> '' THEN o.next_to END AS next_to
  FROM outlier o LEFT JOIN most m ON m.who = o.who LEFT JOIN kinds k ON k.kind = -1 - o.who
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
    AS hosts, max_by(f.bytes, abs(f.bytes)) AS bytes, f.per_step_bytes, f.since_step, f.what, f.module, f.phase, f.next_to
  FROM found f LEFT JOIN process r ON r.rank = f.rank
  GROUP BY f.alike, f.per_step_bytes, f.since_step, f.what, f.module, f.phase, f.next_to)
SELECT ranks, hosts, len(hosts) > 0 AND len(ranks) = (SELECT count(*) FROM process r WHERE r.host IN (SELECT unnest(g.hosts)))
  AND len(ranks) > 1 AS whole_hosts, bytes, per_step_bytes, since_step, what, module, phase,
  CASE WHEN getvariable('grouped') THEN (SELECT list(r.rank ORDER BY r.rank) FROM rank_group r WHERE r.group_number = g.next_to)
    ELSE (SELECT list(k.rank ORDER BY k.rank) FROM kinds k WHERE k.kind = g.next_to) END AS next_to
FROM grouped g ORDER BY abs(bytes) DESC NULLS LAST, ranks;

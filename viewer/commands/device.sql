-- name: device_choose
-- The sample of each rank to show: the last one in step :step, or the last one of all (:last), or the highest.
CREATE TEMP TABLE sample AS
SELECT d.* FROM rank r LEFT JOIN step s ON s.rank = r.rank AND s.step = :step
JOIN device_sample d ON d.rowid = CASE
  WHEN :step IS NOT NULL THEN (SELECT rowid FROM device_sample o WHERE o.rank = r.rank AND o.device IS r.device
    AND o.at_ns BETWEEN s.start_ns AND s.end_ns ORDER BY o.sampled_by = 'nvml', o.at_ns DESC LIMIT 1)
  WHEN :last THEN (SELECT rowid FROM device_sample o WHERE o.rank = r.rank AND o.device IS r.device
    ORDER BY o.at_ns DESC LIMIT 1)
  ELSE (SELECT rowid FROM device_sample o WHERE o.rank = r.rank AND o.device IS r.device
    ORDER BY o.used_bytes DESC, o.at_ns DESC LIMIT 1) END
WHERE (:rank IS NULL OR rank_in(r.rank, :rank))

-- name: device_moment
-- Of these the one that text is about.
SELECT p.rank, (SELECT count(*) FROM sample), p.device, p.at_ns, p.used_bytes, p.total_bytes, (
    SELECT sum(bytes) FROM device_owner o
    WHERE o.rank = p.rank AND o.at_ns = p.at_ns AND o.device = p.device AND owner IN
      ('allocated', 'cublas_workspace', 'pending', 'cached', 'private_pools', 'pytorch', 'pytorch_other')), (
    SELECT iif(start_ns <= p.at_ns, step, NULL) FROM step s WHERE s.rank = p.rank AND end_ns >= p.at_ns ORDER BY end_ns
    LIMIT 1), (SELECT allocator_backend IN ('cudaMallocAsync', 'uncached') FROM rank r WHERE r.rank = p.rank),
  p.sampled_by = 'nvml'
FROM sample p ORDER BY p.used_bytes DESC, p.rank LIMIT 1

-- name: device_samples
SELECT rank, device, at_ns, used_bytes FROM sample WHERE (:rank IS NULL OR rank_in(rank, :rank)) ORDER BY rank

-- name: device_balance
SELECT b.rank, b.device, b.at_ns, b.owner, b.bytes, b.bytes * 1.0 / :used,
  coalesce(k.meaning, 'a library, by its file''s name') FROM device_balance AS b
LEFT JOIN device_owner_meaning AS k ON k.owner = b.owner WHERE b.rank = :rank AND b.device = :device AND b.at_ns = :at
ORDER BY coalesce(k.place, 11.5), b.bytes DESC

-- name: device_communicators
SELECT rank, printf('%x', comm), name, nranks, device_bytes FROM communicator
WHERE rank = :rank AND device_bytes > 0 AND (SELECT count(*) FROM communicator WHERE rank = :rank) > 1
ORDER BY device_bytes DESC, comm

-- name: device_growth
WITH came AS (
  SELECT CASE WHEN owner GLOB 'libnccl*' THEN 'nccl' WHEN owner GLOB 'libcublas*' THEN 'cublas' WHEN owner GLOB
    'libcudnn*' THEN 'cudnn' ELSE owner END AS owner, bytes, step, phase_id, module_id, alloc_ns AS at_ns FROM segment
  WHERE rank = :rank AND owner <> 'pytorch'
  UNION ALL
  SELECT 'gpu_code', image_bytes, step, phase_id, module_id, at_ns FROM gpu_code WHERE rank = :rank AND loaded),
firsts AS MATERIALIZED (
  SELECT operation, min(enqueue_ns) AS at_ns FROM collective WHERE rank = :rank GROUP BY operation, comm)
SELECT :rank, owner, bytes, times, step, place, (SELECT name FROM module_name AS n WHERE n.id = module_id), cause,
  first_ns
FROM (
    SELECT owner, sum(bytes) AS bytes, count(*) AS times, step, place, max(module_id) AS module_id, cause, min(at_ns) AS
      first_ns
    FROM (
        SELECT g.*, coalesce((
              WITH RECURSIVE around(id, depth) AS (
                SELECT g.phase_id, 0
                UNION ALL
                SELECT p.parent_id, depth + 1 FROM around JOIN phase AS p ON p.id = around.id
                WHERE p.kind = 'user' AND p.parent_id IS NOT NULL)
              SELECT CASE WHEN p.kind IN ('forward', 'backward', 'recompute', 'eval') THEN p.kind ||
                coalesce(' of ' || n.name, '') WHEN p.kind = 'step' THEN 'step' ELSE p.name END FROM around
              JOIN phase AS p ON p.id = around.id LEFT JOIN module_name AS n ON n.id = p.module_id ORDER BY depth DESC
              LIMIT 1), 'outside of any range') AS place, CASE WHEN owner <> 'nccl' THEN NULL WHEN EXISTS (
            SELECT 1 FROM communicator AS k WHERE k.rank = :rank AND g.at_ns BETWEEN k.start_ns AND k.end_ns) THEN
          'a new communicator' ELSE (
            SELECT 'the first ' || operation FROM firsts AS f WHERE f.at_ns <= g.at_ns ORDER BY f.at_ns DESC LIMIT 1)
          END AS cause FROM came AS g) GROUP BY owner, step, place, cause) ORDER BY bytes DESC, first_ns

-- name: device_cache
WITH near AS (
  SELECT *
  FROM (
      SELECT * FROM step WHERE rank = :rank AND end_ns <= :at AND end_reserved_bytes IS NOT NULL ORDER BY end_ns DESC
      LIMIT 1)
  UNION ALL
  SELECT *
  FROM (
      SELECT * FROM step WHERE rank = :rank AND end_ns > :at AND end_reserved_bytes IS NOT NULL ORDER BY end_ns LIMIT 1))
SELECT step, end_reserved_bytes - end_active_bytes, end_largest_free_bytes, end_inactive_split_bytes FROM near
ORDER BY abs(end_ns - :at) LIMIT 1

-- name: device_kept_segments
WITH alive AS MATERIALIZED (SELECT id, device, address, bytes, category, detail, name, module_id, step FROM allocation
  WHERE rank = :rank AND alloc_ns <= :at AND (complete_ns IS NULL OR complete_ns > :at)),
live AS (SELECT s.id AS segment, s.bytes AS segment_bytes, a.*, row_number() OVER (PARTITION BY s.id ORDER BY a.bytes
  DESC, a.id) AS place, sum(a.bytes) OVER (PARTITION BY s.id) AS live_bytes FROM segment AS s JOIN alive AS a ON
  a.device = s.device AND a.address >= s.address AND a.address < s.address + s.bytes WHERE s.rank = :rank AND s.owner =
  'pytorch' AND s.alloc_ns <= :at AND (s.free_ns IS NULL OR s.free_ns > :at))
SELECT :rank, segment_bytes, live_bytes, l.id, l.bytes, category || coalesce('/' || detail, ''), l.name, n.name, l.step
FROM live AS l LEFT JOIN module_name AS n ON n.id = l.module_id
WHERE place = 1 AND live_bytes * 10 < segment_bytes ORDER BY segment_bytes - live_bytes DESC, l.id

-- name: device_foreign
SELECT r.rank, r.device, s.device, s.owner, sum(s.bytes), count(*), min(s.alloc_ns) FROM rank AS r
JOIN segment AS s ON s.rank = r.rank AND s.device <> r.device WHERE :rank IS NOT NULL GROUP BY r.rank, s.device, s.owner
UNION ALL
SELECT r.rank, r.device, c.device, 'CUDA context', NULL, count(*), min(c.at_ns) FROM rank AS r
JOIN context AS c ON c.rank = r.rank AND c.device <> r.device AND c.created WHERE :rank IS NOT NULL
GROUP BY r.rank, c.device ORDER BY 1, 3, 5 DESC

-- name: device_pinned
SELECT :rank, owner, sum(bytes), count(*) FROM host_segment
WHERE rank = :rank AND alloc_ns <= :at AND (free_ns IS NULL OR free_ns > :at) GROUP BY owner ORDER BY 3 DESC, 2

-- name: device_unknown
SELECT EXISTS(SELECT 1 FROM device_sample WHERE rank = :rank AND other_bytes IS NOT NULL), (SELECT reason FROM source
  WHERE rank = :rank AND source = 'nvml' AND state = 'off'), EXISTS(SELECT 1 FROM segment WHERE rank = :rank AND owner
  <> 'pytorch')

-- name: device_ends
-- The last sample in each step, and the place of those that text shows side by side: of more than eight the first three, the
-- last, and others evenly between.
CREATE TEMP TABLE ends AS
SELECT step, at_ns, iif(shown, sum(shown) OVER (ORDER BY step), NULL) AS number FROM (
  SELECT step, at_ns, n <= 8 OR place < 3 OR place = n - 1 OR place IN (n / 5, 2 * n / 5, 3 * n / 5, 4 * n / 5) AS shown
  FROM (
    SELECT *, row_number() OVER (ORDER BY step) - 1 AS place, count(*) OVER () AS n FROM (
      SELECT s.step, coalesce(max(d.at_ns) FILTER (WHERE d.sampled_by = 'driver'), max(d.at_ns)) AS at_ns FROM step s
      JOIN device_sample d ON d.rank = s.rank AND d.at_ns BETWEEN s.start_ns AND s.end_ns
      WHERE s.rank = :rank GROUP BY s.step)))

-- name: device_steps
SELECT :rank, e.step, b.owner, b.bytes, b.at_ns
FROM ends e CROSS JOIN device_balance b ON b.rank = :rank AND b.at_ns = e.at_ns
LEFT JOIN device_owner_meaning k ON k.owner = b.owner ORDER BY e.step, coalesce(k.place, 11.5), b.bytes DESC

-- name: device_picked_steps
SELECT step FROM ends WHERE number <= 8 ORDER BY number

-- name: device_by_step
SELECT b.owner, sum(bytes) FILTER (WHERE number = 1), sum(bytes) FILTER (WHERE number = 2),
  sum(bytes) FILTER (WHERE number = 3), sum(bytes) FILTER (WHERE number = 4), sum(bytes) FILTER (WHERE number = 5),
  sum(bytes) FILTER (WHERE number = 6), sum(bytes) FILTER (WHERE number = 7), sum(bytes) FILTER (WHERE number = 8)
FROM ends e CROSS JOIN device_balance b ON b.rank = :rank AND b.at_ns = e.at_ns
LEFT JOIN device_owner_meaning k ON k.owner = b.owner WHERE number IS NOT NULL
GROUP BY b.owner ORDER BY min(coalesce(k.place, 11.5)), max(bytes) DESC

-- name: device_sample_count
SELECT count(*) FROM device_sample

-- name: device_moment_around
-- The samples before and after the moment :after nanoseconds from the beginning, of :rank or the first that was sampled.
WITH moment AS (
  SELECT rank, device, start_ns + :after AS at_ns FROM rank r WHERE (:rank IS NULL OR rank_in(rank, :rank))
    AND EXISTS (SELECT 1 FROM device_sample d WHERE d.rank = r.rank AND d.device IS r.device) ORDER BY rank LIMIT 1)
SELECT m.rank, m.device, m.at_ns,
  (SELECT max(d.at_ns) FROM device_sample d WHERE d.rank = m.rank AND d.device = m.device AND d.at_ns <= m.at_ns),
  (SELECT min(d.at_ns) FROM device_sample d WHERE d.rank = m.rank AND d.device = m.device AND d.at_ns > m.at_ns)
FROM moment m

-- name: device_around
SELECT :rank, :device, :at, :before, :after, b.owner, sum(b.bytes) FILTER (WHERE b.at_ns = :before),
  sum(b.bytes) FILTER (WHERE b.at_ns = :after), coalesce(k.meaning, 'a library, by its file''s name')
FROM device_balance b LEFT JOIN device_owner_meaning k ON k.owner = b.owner
WHERE b.rank = :rank AND b.device = :device AND b.at_ns IN (:before, :after)
GROUP BY b.owner ORDER BY coalesce(k.place, 11.5), max(b.bytes) DESC

-- name: device_pinned_life
-- Every change of pinned memory, and the ends of steps, in order.
SELECT alloc_ns AS at_ns, bytes, NULL AS step FROM host_segment WHERE rank = :rank
UNION ALL SELECT free_ns, -bytes, NULL FROM host_segment WHERE rank = :rank AND free_ns IS NOT NULL
UNION ALL SELECT end_ns, 0, step FROM step WHERE rank = :rank ORDER BY at_ns, bytes, step

-- name: page_clocks
-- How far each rank's clock is ahead of the first rank's host's.
CREATE TEMP TABLE page_clock AS SELECT r.rank, coalesce(h.offset_ns, 0) AS offset_ns
FROM rank AS r LEFT JOIN host_clock AS h ON h.host IS r.host

-- name: page_drawn
-- The ranks that are drawn: of few all, of many those that speak for their group, those asked for (:rank, or NULL), those with
-- the highest peaks, and the first that were refused memory; where nothing tells ranks apart the first ones.
CREATE TEMP TABLE drawn AS SELECT k.rank FROM rank AS k WHERE (SELECT count(*) FROM rank) <= 8 OR (:rank IS NOT NULL AND rank_in(k.rank, :rank))
  OR k.rank IN (SELECT representative FROM rank_group WHERE group_number < 48)
  OR k.rank = (SELECT rank FROM life ORDER BY peak_allocated_bytes DESC, rank LIMIT 1)
  OR k.rank = (SELECT rank FROM step ORDER BY peak_allocated_bytes DESC, rank LIMIT 1)
  OR k.rank IN (SELECT q.rank FROM request AS q JOIN page_clock AS c ON c.rank = q.rank
    JOIN rank_ending AS e ON e.rank = q.rank
    GROUP BY q.rank ORDER BY e.ended <> 'out of memory', min(q.at_ns - c.offset_ns), q.rank LIMIT 3)
  OR (NOT EXISTS (SELECT 1 FROM rank_group) AND k.rank IN (SELECT rank FROM rank ORDER BY rank LIMIT 16))
ORDER BY k.rank

-- name: page_drawn_count
SELECT count(*) FROM drawn

-- name: page_first_instant
SELECT min(r.start_ns - c.offset_ns) FROM rank AS r JOIN page_clock AS c ON c.rank = r.rank

-- name: page_rows
SELECT (SELECT count(*) FROM allocation WHERE rank IN (SELECT rank FROM drawn))
  + (SELECT count(*) FROM peak_category WHERE rank IN (SELECT rank FROM drawn))

-- name: page_each_rank
SELECT rank, :first + offset_ns FROM page_clock WHERE NOT :drawn OR rank IN (SELECT rank FROM drawn) ORDER BY rank

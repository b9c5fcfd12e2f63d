-- What nobody used at a peak, where uses were followed.

-- name: views

-- The periods at whose peak uses were followed, with the stretch in which they were: a window of use_window.
CREATE VIEW followed_period AS
SELECT p.rank, p.period, p.kind, p.step, p.peak_ns, p.peak_allocated_bytes, w.start_ns AS window_start_ns, w.end_ns AS window_end_ns,
  w.sees_launches
FROM period p JOIN use_window w ON w.rank = p.rank AND w.start_ns <= p.peak_ns AND coalesce(w.end_ns, p.peak_ns + 1) > p.peak_ns;

-- Of what was allocated at the peak of a period in which uses were followed, that which no operator was using any more, or not yet.
-- state: late: last used before the peak, and freed later (idle_until_ns), without a use in between. early: made without a value,
-- and not used before the peak (idle_until_ns: its first use, or its free; NULL: neither was followed). hidden: late or early, but a
-- kernel that no operator launched may have used it meanwhile. kept: not used again while that was followed, but alive when that
-- ended, or freed outside of it: it may be needed yet. idle_ns: since when, up to the peak. last_use_site_id: the operator that used
-- it last, of an early one after the peak. What has less than 512 B is left out: its uses are not followed.
CREATE VIEW idle_at_peak AS
SELECT rank, step, period, place, peak_ns, allocation_id, bytes, category, module_id, site_id, last_use_site_id, last_use_ns,
  peak_ns - coalesce(last_use_ns, alloc_ns) AS idle_ns, iif(state = 'kept', NULL, idle_until_ns) AS idle_until_ns, use_step,
  CASE WHEN state = 'kept' THEN 'kept'
    WHEN NOT sees_launches OR (state = 'late' AND hidden_last_ns > peak_ns) OR (state = 'early' AND hidden_first_ns <= peak_ns) THEN 'hidden'
    ELSE state END AS state
FROM (
  SELECT p.rank, n.step, p.period, n.place, p.peak_ns, a.id AS allocation_id, a.bytes, a.category, a.module_id, a.site_id, a.alloc_ns,
    u.last_use_site_id, iif(u.first_use_ns > p.peak_ns, NULL, u.last_use_ns) AS last_use_ns, u.use_step, u.hidden_first_ns, u.hidden_last_ns,
    p.sees_launches,
    CASE WHEN u.first_use_ns <= p.peak_ns THEN
        iif(a.free_ns <= coalesce(p.window_end_ns, a.free_ns) OR u.use_step IS NOT NULL, 'late', 'kept')
      WHEN a.alloc_ns < p.window_start_ns THEN 'kept'
      ELSE 'early' END AS state,
    iif(u.first_use_ns > p.peak_ns, u.first_use_ns, a.free_ns) AS idle_until_ns
  FROM followed_period p JOIN period_place n ON n.rank = p.rank AND n.period = p.period
  JOIN rank r ON r.rank = p.rank
  JOIN allocation a ON a.rank = p.rank AND a.device = r.device AND a.alloc_ns < p.peak_ns AND coalesce(a.free_ns, p.peak_ns + 1) > p.peak_ns
    AND a.requested_bytes >= 512
  LEFT JOIN allocation_use u ON u.allocation_id = a.id
  WHERE coalesce(u.first_use_ns > p.peak_ns OR u.last_use_ns < p.peak_ns, 1));

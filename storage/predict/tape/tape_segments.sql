-- What the allocator of a rank's own device took from the driver and gave back; the last but one: whether the
-- driver had refused a request for which that was given back.
SELECT s.event, s.action, s.address, s.bytes, s.stream, coalesce(s.pool, ''),
  EXISTS (SELECT 1 FROM retry t WHERE t.rank = s.rank AND t.device = s.device AND s.at_ns BETWEEN t.at_ns AND t.served_ns),
  s.at_ns
FROM allocator_segment s WHERE s.rank = :rank AND s.device = :device ORDER BY s.event, s.rowid

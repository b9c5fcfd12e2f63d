-- The most of a rank's device that was not its allocator's, over the samples of the device; NULL: there are none.
SELECT max(s.used_bytes - (
  SELECT coalesce(sum(o.bytes), 0) FROM device_owner o
  WHERE o.rank = s.rank AND o.at_ns = s.at_ns AND o.device = s.device AND o.owner IN ('allocated', 'cached', 'cublas_workspace')))
FROM device_sample s WHERE s.rank = :rank AND s.device = :device

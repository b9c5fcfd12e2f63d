-- A rank's life, period by period, with what was recorded of each.
SELECT period, kind, coalesce(step, -1), coalesce(same_as, -1), first_allocator_event,
  peak_requested_bytes, peak_allocated_bytes, peak_active_bytes, peak_reserved_bytes,
  end_requested_bytes, end_allocated_bytes, end_active_bytes, end_reserved_bytes
FROM period WHERE rank = :rank AND first_allocator_event IS NOT NULL ORDER BY period

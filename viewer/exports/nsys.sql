-- name: nsys_processes
SELECT rank, zero_ns, global_pid FROM process ORDER BY rank

-- name: nsys_range
INSERT INTO NVTX_EVENTS(start, "end", eventType, rangeId, category, text, globalTid, endGlobalTid, textId, domainId,
  jsonText) VALUES (:start, :end, :type, :id, (SELECT id FROM kind WHERE kind = :kind), :text, :thread, :end_thread,
  (SELECT id FROM StringIds WHERE value = :text), 1, json_object('kind', :kind, 'module', :module, 'step', :step,
  'call', :call))

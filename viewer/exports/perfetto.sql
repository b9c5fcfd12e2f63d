-- name: perfetto_copies
SELECT device, stream, CASE kind WHEN 1 THEN 'copy HtoD' WHEN 2 THEN 'copy DtoH' WHEN 8 THEN 'copy DtoD' WHEN 10 THEN
  'copy PtoP' ELSE 'copy' END, bytes, start_ns AS start, end_ns FROM memcpy WHERE rank = :rank
UNION ALL
SELECT device, stream, 'memset', bytes, start_ns, end_ns FROM memset WHERE rank = :rank ORDER BY start

-- name: perfetto_calls
SELECT id, tid, enqueue_ns, operation, bytes, comm, seq FROM collective WHERE rank = :rank ORDER BY enqueue_ns

-- name: perfetto_module_count
SELECT count(*) FROM module

-- name: perfetto_modules
SELECT id FROM module WHERE rank = :rank ORDER BY id

-- name: perfetto_module_name
SELECT name FROM module_name WHERE id = :id

-- name: perfetto_ooms
SELECT at_ns, requested_bytes FROM oom WHERE rank = :rank

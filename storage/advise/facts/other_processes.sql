-- name: advise_fact_other_processes
-- A limit of this process is reached whatever the others hold.
SELECT sum(bytes), 1, '' FROM device_owner WHERE rank = :rank AND at_ns = :at AND owner = 'other_processes' AND NOT :limited

-- Of a rank's device, what the size of some tables depends on.
SELECT coalesce(multiprocessors, 0), coalesce(multiprocessor_threads, 0) FROM rank WHERE rank = :rank

-- name: advise_held
-- What lived at an instant, in groups: of a refused request (:at), or of a period's peak (:period).
CREATE TEMP TABLE held AS
SELECT category, detail, module_id, bytes, allocations FROM oom_owner WHERE rank = :rank AND at_ns = :at
UNION ALL
SELECT category, detail, module_id, bytes, allocations FROM peak_owner WHERE :at IS NULL AND rank = :rank AND period = :period

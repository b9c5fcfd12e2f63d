-- name: ledger_tables
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('meta', 'rank', 'period')

-- name: lacks_tables
-- One that was made before this version was complete.
SELECT NOT EXISTS(SELECT 1 FROM sqlite_schema WHERE name = 'rank_rows')

-- name: is_of_older_run
SELECT EXISTS(SELECT 1 FROM attempt WHERE is_this AND attempt < (SELECT max(attempt) FROM attempt))

-- name: keeps_all
SELECT EXISTS(SELECT 1 FROM meta WHERE key = 'keep' AND value = 'all')

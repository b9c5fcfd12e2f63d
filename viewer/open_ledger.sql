-- name: ledger_tables
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('meta', 'rank', 'period')

-- name: keeps_all
SELECT EXISTS(SELECT 1 FROM meta WHERE key = 'keep' AND value = 'all')

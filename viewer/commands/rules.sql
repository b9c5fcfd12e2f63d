-- name: rules_text
SELECT value FROM meta WHERE key = 'rules'

-- name: advise_price_collectives
-- In the last step that has them: an operation's time on the device, how many there were, and which step.
SELECT sum(end_ns - start_ns), count(*), step FROM collective
WHERE rank = :rank AND operation = :name AND end_ns > start_ns AND step IS NOT NULL GROUP BY step ORDER BY step DESC LIMIT 1

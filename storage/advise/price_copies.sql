-- name: advise_price_copies
-- Copies between host and device that are large enough to tell a rate: bytes and time on the device; and the parameters' bytes.
SELECT sum(bytes), sum(end_ns - start_ns), count(*), (SELECT coalesce(sum(bytes), 0) FROM held WHERE category IN ('param', 'sharded_param'))
FROM memcpy WHERE rank = :rank AND kind IN (1, 2) AND bytes >= 1 << 20 AND end_ns > start_ns

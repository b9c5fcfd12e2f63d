-- Copies between host and device that are large enough to tell a rate: bytes and time on the device.
SELECT sum(bytes), sum(end_ns - start_ns), count(*) FROM memcpy WHERE rank = :rank AND kind IN (1, 2) AND bytes >= 1 << 20 AND end_ns > start_ns

-- name: heat_steps
-- Nothing for so few ranks that other parts of the page show all of it.
SELECT DISTINCT step FROM step WHERE peak_allocated_bytes IS NOT NULL AND (SELECT count(*) FROM rank) >= 4 ORDER BY step

-- name: heat_peaks
SELECT rank, step, peak_allocated_bytes FROM step WHERE peak_allocated_bytes IS NOT NULL ORDER BY rank, step

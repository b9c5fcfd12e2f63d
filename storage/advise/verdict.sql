-- name: advise_verdict
-- What is alive then and no change frees: parameters and buffers; what the program made outside of models; and the optimizer's states.
SELECT coalesce(sum(bytes) FILTER (WHERE category IN ('param', 'sharded_param', 'buffer')), 0),
  coalesce(sum(bytes) FILTER (WHERE category = 'program'), 0),
  coalesce(sum(bytes) FILTER (WHERE category = 'optstate'), 0),
  coalesce(sum(bytes) FILTER (WHERE category = 'sharded_param'), 0)
FROM held

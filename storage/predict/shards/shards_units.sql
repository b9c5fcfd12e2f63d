-- A rank's units of FSDP2.
SELECT module_id, shard_ranks, replicas, reshard_ranks, groups, coalesce(param_dtype, ''), coalesce(reduce_dtype, ''), is_offloaded
FROM fsdp_unit WHERE rank = :rank ORDER BY module_id

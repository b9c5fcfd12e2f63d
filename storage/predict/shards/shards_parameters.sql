-- A rank's parameters and how they are split.
SELECT parameter, name, dtype, shape, local_shape, coalesce(placement, ''), is_trained, is_offloaded, coalesce(unit_id, 0),
  coalesce(place, 0)
FROM parameter WHERE rank = :rank ORDER BY parameter

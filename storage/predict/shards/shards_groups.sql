-- The groups of a rank's optimizers.
SELECT optimizer, parameters, count FROM optimizer WHERE rank = :rank ORDER BY optimizer, group_number

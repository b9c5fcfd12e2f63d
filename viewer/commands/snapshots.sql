-- name: snapshots_steps
SELECT rank, step FROM shown_step WHERE asked IS :step AND (:rank IS NULL OR rank_in(rank, :rank)) ORDER BY rank

-- name: snapshots_states
-- The view's rows of one rank and step, one for each word. Asked step by step with the numbers bound, since only then SQLite
-- takes them inside the view. Modules stand in the model's order, which their ids have, states in that of :states.
WITH named AS (
  SELECT *, iif(instr(fqn, '.'), substr(fqn, instr(fqn, '.') + 1), '') AS short, instr(:states, ',' || state || ',') AS place
  FROM fsdp_snapshot WHERE rank = :rank AND step = :step)
SELECT fqn || ' ' || call || state, rank, :step, fqn, short, call, state, category, sum(bytes)
FROM named LEFT JOIN (SELECT fqn AS short, min(id) AS id FROM module WHERE rank = :rank GROUP BY fqn) USING (short)
WHERE :module IS NULL OR fqn GLOB :module OR short GLOB :module OR (short = '' AND fqn = 'FSDP' || :module)
GROUP BY fqn, call, state, category ORDER BY id, fqn, call, nullif(place, 0), state

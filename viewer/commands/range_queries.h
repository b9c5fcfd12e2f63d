/* Ranges in words, for every command that says where something happened. */
#ifndef SHARDLEDGER_RANGE_QUERIES_H
#define SHARDLEDGER_RANGE_QUERIES_H

/* What a range (alias p, its module n) is called in a sentence. */
#define SL_SQL_RANGE                                                                                                   \
  " CASE WHEN p.kind = 'user' THEN '\"' || p.name || '\"' WHEN p.kind = 'step' THEN 'step ' || p.step"                 \
  "  WHEN p.kind IN ('forward', 'backward', 'recompute', 'eval') THEN p.kind || coalesce(' of ' || n.name, '')"        \
  "  ELSE p.name END "

/* The ranges around a phase and itself, from the innermost (depth 0) outwards. */
#define SL_SQL_AROUND(phase)                                                                                           \
  " around(id, depth) AS (SELECT " phase ", 0 UNION ALL"                                                               \
  "  SELECT p.parent_id, depth + 1 FROM around JOIN phase AS p ON p.id = around.id WHERE p.parent_id IS NOT NULL) "

#define SL_SQL_CHAIN(phase)                                                                                            \
  "(WITH RECURSIVE" SL_SQL_AROUND(phase) "SELECT group_concat(label, ' > ') FROM (SELECT" SL_SQL_RANGE                 \
                                         "AS label FROM around JOIN phase AS p ON p.id = around.id LEFT JOIN "         \
                                         "module_name AS n ON n.id = p.module_id"                                      \
                                         " ORDER BY depth DESC))"

/* How a rank (alias r) ended: "out of memory" when no step began after a refused request. */
#define SL_SQL_ENDED                                                                                                   \
  "CASE WHEN EXISTS (SELECT 1 FROM oom AS o WHERE o.rank = r.rank AND NOT EXISTS (SELECT 1 FROM step AS s"             \
  "  WHERE s.rank = o.rank AND s.start_ns > o.at_ns)) THEN 'out of memory'"                                            \
  " WHEN r.clean_exit THEN 'clean' ELSE 'cut off' END"

#endif

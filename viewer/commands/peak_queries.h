/* SQL that several commands share. */
#ifndef SHARDLEDGER_PEAK_QUERIES_H
#define SHARDLEDGER_PEAK_QUERIES_H

/*
 * The step to show of each rank: :step where it is given, else the one with the highest peak (by an index: a long run
 * has many). rows_step is the step whose rows speak for it: itself, or the one that it repeats. Parameters :rank and
 * :step may be NULL.
 */
#define SL_SQL_CHOSEN                                                                                                  \
  "chosen AS ("                                                                                                        \
  " SELECT s.*, coalesce(s.same_as, s.step) AS rows_step FROM rank AS k CROSS JOIN step AS s ON s.rank = k.rank"       \
  "  AND s.step = coalesce(:step, (SELECT h.step FROM step AS h WHERE h.rank = k.rank"                                 \
  "   AND h.peak_allocated_bytes IS NOT NULL ORDER BY h.peak_allocated_bytes DESC, h.step LIMIT 1))"                   \
  " WHERE s.peak_allocated_bytes IS NOT NULL AND (:rank IS NULL OR k.rank = :rank))"

/* A module (alias m) in text, where a root without a name goes by its class, and in data. Parameter :text is 1 or 0. */
#define SL_SQL_FQN "iif(m.fqn = '' AND :text, coalesce(m.class, '(root)'), m.fqn)"

/* Where a chosen step (alias c) has its peak: "forward of layers.3", "optimizer step". */
#define SL_SQL_WHERE_PEAK                                                                                              \
  "coalesce("                                                                                                          \
  " (SELECT CASE p.kind WHEN 'user' THEN p.name ELSE replace(p.kind, '_', ' ') END ||"                                 \
  "         iif(m.id IS NULL, '', ' of ' || " SL_SQL_FQN ")"                                                           \
  "  FROM step AS w JOIN phase AS p ON p.id = w.peak_phase_id LEFT JOIN module AS m ON m.id = w.peak_module_id"        \
  "  WHERE w.rank = c.rank AND w.step = c.step),"                                                                      \
  " 'outside any phase')"

/* Binds a number, or NULL when it is negative: "not given". */
#define sl_bind_optional(statement, name, value)                                                                       \
  ((value) < 0 ? sl_bind_named_null(statement, name) : sl_bind_named_int(statement, name, value))

#endif

/* SQL that several commands share. */
#ifndef SHARDLEDGER_PEAK_QUERIES_H
#define SHARDLEDGER_PEAK_QUERIES_H

/*
 * The step to show of each rank: :step where it is given, else the one with the highest peak. rows_step is the step
 * whose rows speak for it: itself, or the one that it repeats. Parameters :rank and :step may be NULL.
 */
#define SL_SQL_CHOSEN                                                                                                  \
  "chosen AS ("                                                                                                        \
  " SELECT *, coalesce("                                                                                               \
  "  (SELECT p.step FROM peak AS p WHERE p.rank = s.rank AND p.step = s.step AND p.module_id IS NOT NULL LIMIT 1),"    \
  "  same_as, step) AS rows_step"                                                                                      \
  " FROM (SELECT *, row_number() OVER (PARTITION BY rank ORDER BY peak_allocated_bytes DESC, step) AS place"           \
  "       FROM step WHERE peak_allocated_bytes IS NOT NULL AND (:rank IS NULL OR rank = :rank)"                        \
  "         AND (:step IS NULL OR step = :step)) AS s"                                                                 \
  " WHERE place = 1)"

/* A module (alias m) in text, where a root without a name goes by its class, and in data. Parameter :text is 1 or 0. */
#define SL_SQL_FQN "iif(m.fqn = '' AND :text, coalesce(m.class, '(root)'), m.fqn)"

/*
 * Where a chosen step (alias c) has its peak: "forward of layers.3", "optimizer step". A step that repeats another may
 * have left its phases to that one.
 */
#define SL_SQL_WHERE_PEAK                                                                                              \
  "coalesce("                                                                                                          \
  " (SELECT CASE p.kind WHEN 'user' THEN p.name ELSE replace(p.kind, '_', ' ') END ||"                                 \
  "         iif(m.id IS NULL, '', ' of ' || " SL_SQL_FQN ")"                                                           \
  "  FROM step AS w JOIN phase AS p ON p.id = w.peak_phase_id LEFT JOIN module AS m ON m.id = w.peak_module_id"        \
  "  WHERE w.rank = c.rank AND w.step = iif(c.peak_phase_id IS NULL, c.rows_step, c.step)),"                           \
  " 'outside any phase')"

/* Binds a number, or NULL when it is negative: "not given". */
#define sl_bind_optional(statement, name, value)                                                                       \
  ((value) < 0 ? sl_bind_named_null(statement, name) : sl_bind_named_int(statement, name, value))

#endif

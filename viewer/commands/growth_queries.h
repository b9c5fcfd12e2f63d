/* What grows, for every command that tells it. */
#ifndef SHARDLEDGER_GROWTH_QUERIES_H
#define SHARDLEDGER_GROWTH_QUERIES_H

/*
 * told: groups of what outlives its step and the next one. A group is what has the same module, phase, category and
 * size. Its first survivor opens the steps that count; the last step of a rank does not, since nobody knows yet what
 * survives it. It grows when each of these steps left something that is still alive at the end; two steps are the least
 * that can show it. Parameters :rank, :step and :min may be NULL.
 */
#define SL_SQL_TOLD                                                                                                    \
  "made AS ("                                                                                                          \
  " SELECT rank, module, phase, category, detail, decided_by, size_bytes, min(step) AS first_step,"                    \
  "  max(step) AS last_step, count(*) AS steps, count(*) FILTER (WHERE kept_bytes > 0) AS kept_steps,"                 \
  "  sum(bytes) FILTER (WHERE :step IS NULL OR step = :step) AS bytes,"                                                \
  "  sum(allocations) FILTER (WHERE :step IS NULL OR step = :step) AS allocations,"                                    \
  "  sum(bytes) AS all_bytes, sum(kept_bytes) AS kept_bytes"                                                           \
  " FROM survivors WHERE :rank IS NULL OR rank = :rank"                                                                \
  " GROUP BY rank, module, phase, category, detail, decided_by, size_bytes),"                                          \
  " span AS (SELECT made.*, (SELECT iif(k.last_step - k.first_step = k.steps - 1,"                                     \
  "   k.last_step - max(made.first_step, k.first_step), /* no number is missing, so none needs to be looked at */"     \
  "   (SELECT count(*) - 1 FROM step AS s WHERE s.rank = made.rank AND s.step >= made.first_step))"                    \
  "   FROM rank_steps AS k WHERE k.rank = made.rank)"                                                                  \
  "  AS possible FROM made WHERE bytes > 0 AND (:min IS NULL OR bytes >= :min)),"                                      \
  " sorted AS (SELECT *, CASE WHEN kept_steps = possible AND possible >= 2 THEN 'growth'"                              \
  "  WHEN kept_bytes < all_bytes THEN 'passing' WHEN steps > 1 THEN 'some_steps' ELSE 'once' END AS pattern FROM "     \
  "span),"                                                                                                             \
  " told AS MATERIALIZED (SELECT *, CASE WHEN pattern = 'growth' THEN kept_bytes / possible END AS growth FROM "       \
  "sorted)"

#endif

/* Prices a change in time, from the run's own phases, collectives and copies. */
#include "price.h"

#include "storage/tables/sql_text.h"

#include <inttypes.h>
#include <stdio.h>

/* "12.3 ms" */
static const char *time_words(int64_t ns, char out[static 24]) {
  if (ns >= 1000000000)
    snprintf(out, 24, "%.2f s", (double)ns / 1e9);
  else if (ns >= 1000000)
    snprintf(out, 24, "%.1f ms", (double)ns / 1e6);
  else
    snprintf(out, 24, "%.0f us", (double)ns / 1e3);
  return out;
}

static int forward_price(struct sl_db *db, const struct sl_goal *goal, const char *name, struct sl_cost *out,
                         struct sl_error *error) {
  struct sl_statement *row = NULL;
  char time[24], whole[24];
  int r = sl_db_ask_first(db, sl_advise_price_forward_sql,
                          SL_WITH(SL_NUMBER(":rank", goal->rank), SL_GIVEN(":step", goal->is_refused ? goal->step : -1),
                                  SL_WORD(":name", name)),
                          &row, error);
  if (r > 0) {
    out->ns = sl_column_int(row, 0);
    snprintf(out->words, sizeof out->words, "their forward again: %s of the host's %s in step %" PRId64,
             time_words(out->ns, time), time_words(sl_column_int(row, 1), whole), sl_column_int(row, 2));
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static int collective_price(struct sl_db *db, const struct sl_goal *goal, const char *operation, const char *words,
                            struct sl_cost *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  char time[24];
  int r = sl_db_ask_first(db, sl_advise_price_collectives_sql,
                          SL_WITH(SL_NUMBER(":rank", goal->rank), SL_WORD(":name", operation)), &row, error);
  if (r > 0) {
    out->ns = sl_column_int(row, 0);
    snprintf(out->words, sizeof out->words,
             "%s, up to as many as the %" PRId64 " of step %" PRId64 ": %s on the device", words, sl_column_int(row, 1),
             sl_column_int(row, 2), time_words(out->ns, time));
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

/* Gradients there and parameters back, at the rate of the run's own copies; how long the host's step takes nobody
 * knows. */
static int copy_price(struct sl_db *db, const struct sl_goal *goal, struct sl_cost *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  char time[24];
  int r = sl_db_ask_first(db, sl_advise_price_copies_sql, SL_WITH(SL_NUMBER(":rank", goal->rank)), &row, error);
  if (r > 0 && sl_column_int(row, 2)) {
    const double rate = (double)sl_column_int(row, 0) / (double)sl_column_int(row, 1); /* bytes a nanosecond */
    snprintf(out->words, sizeof out->words,
             "gradients there and parameters back: %s at the %.1f GB/s of the run's own copies; the host's step is not "
             "known",
             time_words((int64_t)(2.0 * (double)sl_column_int(row, 3) / rate), time), rate);
  } else if (r >= 0) {
    snprintf(out->words, sizeof out->words, "not known: the run has no copies that tell a rate");
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

int sl_price(struct sl_db *db, const struct sl_goal *goal, enum sl_price price, const char *name, struct sl_cost *out,
             struct sl_error *error) {
  *out = (struct sl_cost){.ns = -1, .words = "not known"};
  switch (price) {
  case SL_PRICE_forward: return forward_price(db, goal, name, out, error);
  case SL_PRICE_gather: return collective_price(db, goal, "AllGather", "all-gathers in backward", out, error);
  case SL_PRICE_reduce:
    return collective_price(db, goal, "ReduceScatter", "reduce-scatters of each micro-batch", out, error);
  case SL_PRICE_copy: return copy_price(db, goal, out, error);
  case SL_PRICE_batch:
    snprintf(out->words, sizeof out->words, "half the samples a step, so twice the steps for as many");
    return 0;
  case SL_PRICE_nothing: *out = (struct sl_cost){.ns = 0, .words = "none known"}; return 0;
  default: return 0;
  }
}

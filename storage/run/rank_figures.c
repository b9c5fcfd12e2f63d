/* One pass over the periods, in the order in which they lie. */
#include "rank_figures.h"

#include "storage/tables/sql_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sl_rank_periods(struct sl_db *db, int64_t rank, struct sl_statement **out, struct sl_error *error) {
  return sl_db_ask(db, sl_rank_periods_sql, SL_WITH(SL_GIVEN(":rank", rank)), out, error);
}

bool sl_period_key_read(struct sl_statement *row, struct sl_period_key *out) {
  const char *kind = sl_column_text(row, SL_PERIOD_KIND);
  const bool is_step = strcmp(kind, "step") == 0, is_between = strcmp(kind, "between") == 0;
  if (is_step || is_between)
    *out = (struct sl_period_key){sl_column_int(row, SL_PERIOD_STEP), SL_SLOT_steps, is_between};
  else if (strcmp(kind, "setup") == 0)
    *out = (struct sl_period_key){INT64_MIN, SL_SLOT_setup, false};
  else if (strcmp(kind, "end") == 0)
    *out = (struct sl_period_key){INT64_MAX, SL_SLOT_end, false};
  else if (strcmp(kind, "whole") == 0)
    *out = (struct sl_period_key){INT64_MAX, SL_SLOT_whole, false};
  else
    return false;
  return true;
}

static size_t slot_of(const struct sl_rank_figures *figures, const struct sl_period_key *key) {
  if (key->slot != SL_SLOT_steps)
    return key->slot;
  const uint64_t place = ((uint64_t)key->step - (uint64_t)figures->first_step) / (uint64_t)figures->steps_per_slot;
  return SL_SLOT_steps + 2 * (size_t)place + key->is_between;
}

/* How many slots it takes, and how many ranks there may be. */
static int lay_out(struct sl_db *db, struct sl_rank_figures *out, size_t *ranks, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, "SELECT (SELECT count(*) FROM rank), min(first_step), max(last_step) FROM rank_steps",
                          NULL, &row, error);
  out->steps_per_slot = 1;
  out->slots = SL_SLOT_steps;
  if (r > 0) {
    *ranks = (size_t)sl_column_int(row, 0);
    if (!sl_column_is_null(row, 1)) {
      out->first_step = sl_column_int(row, 1);
      out->last_step = sl_column_int(row, 2);
      const uint64_t span = (uint64_t)out->last_step - (uint64_t)out->first_step;
      out->steps_per_slot += (int64_t)(span / SL_FIGURE_STEPS_MAX);
      out->slots += 2 * (size_t)(span / (uint64_t)out->steps_per_slot + 1);
    }
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static void figure_add(struct sl_figure *figure, struct sl_statement *row) {
  const int64_t peak = sl_column_int(row, SL_PERIOD_PEAK);
  if (peak > figure->peak)
    figure->peak = peak;
  figure->end = sl_column_int(row, SL_PERIOD_CUT) ? SL_FIGURE_NONE : sl_column_int(row, SL_PERIOD_END);
}

/* A rank whose steps end within a slot has not reached what the others have there. */
static void last_slot_cut(struct sl_rank_figures *out, int64_t rank_last_step) {
  const struct sl_period_key key = {rank_last_step, SL_SLOT_steps, false};
  struct sl_figure *own = out->figures + (out->count - 1) * out->slots;
  const size_t slot = slot_of(out, &key);
  const bool is_whole = ((uint64_t)rank_last_step - (uint64_t)out->first_step + 1) % (uint64_t)out->steps_per_slot == 0;
  if (rank_last_step < out->first_step || rank_last_step >= out->last_step || is_whole || slot + 1 >= out->slots)
    return;
  own[slot].end = own[slot + 1].end = SL_FIGURE_NONE;
}

int sl_rank_figures_read(struct sl_db *db, struct sl_rank_figures *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  size_t room = 0;
  int64_t last_step = INT64_MIN; /* of the rank that is being read */
  *out = (struct sl_rank_figures){0};
  int r = lay_out(db, out, &room, error);
  if (r < 0)
    return r;
  out->ranks = calloc(room + 1, sizeof *out->ranks);
  out->figures = reallocarray(NULL, (room + 1) * out->slots, sizeof *out->figures);
  if (!out->ranks || !out->figures) {
    r = sl_no_memory(error);
    goto finish;
  }
  memset(out->figures, 0xff, (room + 1) * out->slots * sizeof *out->figures); /* SL_FIGURE_NONE */
  r = sl_rank_periods(db, -1, &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    struct sl_period_key key;
    const uint32_t rank = (uint32_t)sl_column_int(row, SL_PERIOD_RANK);
    if (!sl_period_key_read(row, &key))
      continue;
    if (out->count == 0 || out->ranks[out->count - 1] != rank) {
      if (out->count)
        last_slot_cut(out, last_step);
      out->ranks[out->count++] = rank;
      last_step = INT64_MIN;
    }
    const size_t slot = slot_of(out, &key);
    if (slot < out->slots)
      figure_add(out->figures + (out->count - 1) * out->slots + slot, row);
    if (key.slot == SL_SLOT_steps)
      last_step = key.step;
  }
  if (r == 0 && out->count)
    last_slot_cut(out, last_step);
finish:
  row = sl_statement_close(row);
  if (r < 0)
    sl_rank_figures_free(out);
  return r;
}

void sl_rank_figures_free(struct sl_rank_figures *figures) {
  free(figures->ranks);
  free(figures->figures);
  *figures = (struct sl_rank_figures){0};
}

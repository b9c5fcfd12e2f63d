/*
 * The figures by which ranks are compared: for each rank the peak and the end of its periods, in slots that mean the
 * same on every rank. A slot is the stretch before the first step, what follows the last one, a step, or what follows a
 * step. Of a long run several steps share one, so that memory is bounded: SL_FIGURE_STEPS_MAX slots of steps, 16 KiB a
 * rank.
 */
#ifndef SHARDLEDGER_RANK_FIGURES_H
#define SHARDLEDGER_RANK_FIGURES_H

#include "storage/tables/db.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_FIGURE_STEPS_MAX 512
#define SL_FIGURE_NONE (-1)

/* Bytes; SL_FIGURE_NONE where the rank has no such period. Of several steps in a slot: the highest, and the last end.
 */
struct sl_figure {
  int64_t peak, end;
};

enum sl_slot { SL_SLOT_setup, SL_SLOT_end, SL_SLOT_whole, SL_SLOT_steps };

/* What a period is compared as, and the order of those in time. */
struct sl_period_key {
  int64_t step; /* INT64_MIN before the first one, INT64_MAX after the last one and without steps */
  enum sl_slot slot;
  bool is_between; /* what follows the step */
};

struct sl_rank_figures {
  uint32_t *ranks; /* those with recorded allocations, upwards; owned */
  size_t count, slots;
  int64_t first_step, last_step, steps_per_slot; /* of all ranks */
  struct sl_figure *figures;                     /* count times slots; owned */
};

/*
 * Reads them of a ledger that has its views. A period that the end of a log cut off is left out: it did not reach its
 * peak. 0 or a negative errno. Free with sl_rank_figures_free.
 */
int sl_rank_figures_read(struct sl_db *db, struct sl_rank_figures *out, struct sl_error *error);
void sl_rank_figures_free(struct sl_rank_figures *figures);

static inline const struct sl_figure *sl_rank_figures_of(const struct sl_rank_figures *figures, size_t rank) {
  return figures->figures + rank * figures->slots;
}

/*
 * The same periods of one rank (-1: of all, rank by rank), exactly, as a statement: rank, period, kind, step, peak,
 * end. What its rows are compared as is told by sl_period_key_read; false: they are compared with nothing.
 */
int sl_rank_periods(struct sl_db *db, int64_t rank, struct sl_statement **out, struct sl_error *error);
bool sl_period_key_read(struct sl_statement *row, struct sl_period_key *out);
enum { SL_PERIOD_RANK, SL_PERIOD_NUMBER, SL_PERIOD_KIND, SL_PERIOD_STEP, SL_PERIOD_PEAK, SL_PERIOD_END, SL_PERIOD_CUT };

#endif

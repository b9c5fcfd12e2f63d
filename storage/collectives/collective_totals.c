/*
 * Totals of a period wait until it is known whether its step's own rows are kept. A call that is told after that makes
 * a row of its own, which readers add up.
 */
#include "collective_totals.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct total {
  struct {
    uint64_t period, comm;
    const char *operation; /* of the log, where equal names are one; else the rows are more, and as true */
    int32_t has_comm, before;
  } key;
  struct sl_collective_total_row row;
  UT_hash_handle hh;
};

struct sl_collective_totals {
  struct total *totals;
};

struct sl_collective_totals *sl_collective_totals_new(void) {
  return calloc(1, sizeof(struct sl_collective_totals));
}

static void drop(struct sl_collective_totals *totals, struct total *total) {
  HASH_DEL(totals->totals, total);
  free(total);
}

struct sl_collective_totals *sl_collective_totals_free(struct sl_collective_totals *totals) {
  struct total *total, *next;
  if (totals)
    HASH_ITER(hh, totals->totals, total, next)
  drop(totals, total);
  free(totals);
  return NULL;
}

static void count(struct sl_collective_total_row *total, const struct sl_collective_row *row) {
  total->calls++;
  total->bytes += row->has_bytes ? row->bytes : 0;
  if (!row->start_ns || row->end_ns < row->start_ns)
    return;
  /* A kernel that served several calls counts for each with its part, so that sums are the device's time. */
  uint64_t duration_ns = (row->end_ns - row->start_ns) / (row->kernel_calls ? row->kernel_calls : 1);
  if (!total->timed || duration_ns < total->min_duration_ns)
    total->min_duration_ns = duration_ns;
  if (duration_ns > total->max_duration_ns)
    total->max_duration_ns = duration_ns;
  total->timed++;
  total->duration_ns += duration_ns;
  total->delay_ns += (int64_t)row->start_ns - (int64_t)row->enqueue_ns;
}

int sl_collective_totals_add(struct sl_collective_totals *totals, size_t period, const struct sl_collective_row *row,
                             struct sl_error *error) {
  struct total search, *total;
  memset(&search, 0, sizeof search);
  search.key.period = period;
  search.key.comm = row->has_comm ? row->comm : 0;
  search.key.has_comm = row->has_comm;
  search.key.operation = row->operation;
  search.key.before = row->step < 0;
  HASH_FIND(hh, totals->totals, &search.key, sizeof search.key, total);
  if (!total) {
    total = malloc(sizeof *total);
    if (!total)
      return sl_no_memory(error);
    *total = search;
    total->row = (struct sl_collective_total_row){
        .before = row->step < 0, .has_comm = row->has_comm, .comm = search.key.comm, .operation = row->operation};
    SL_HASH_ADD(totals->totals, key, total);
    if (!total)
      return sl_no_memory(error);
  }
  count(&total->row, row);
  return 0;
}

void sl_collective_totals_forget(struct sl_collective_totals *totals, size_t period) {
  struct total *total, *next;
  HASH_ITER(hh, totals->totals, total, next)
  if (total->key.period == period)
    drop(totals, total);
}

int sl_collective_totals_write(struct sl_collective_totals *totals, size_t before_period,
                               int64_t (*step)(void *context, size_t period), void *context,
                               struct sl_ledger_writer *writer, struct sl_error *error) {
  struct total *total, *next;
  int r = 0;
  HASH_ITER(hh, totals->totals, total, next) {
    if (r < 0 || total->key.period >= before_period)
      continue;
    total->row.step = step(context, total->key.period);
    r = sl_write_collective_total(writer, &total->row, error);
    drop(totals, total);
  }
  return r;
}

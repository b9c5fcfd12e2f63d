/*
 * Both tables are read in the order of their starts, side by side, so memory holds only the stretches of compute that
 * the present collective may touch.
 */
#include "exposed_time.h"

#include "storage/tables/db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IS_COMPUTE "instr(name, 'nccl') = 0 AND end_ns > start_ns"

/* Lengths and sums are unsigned, so that no time in a damaged log can overflow them. */
struct stretch { /* in which compute kernels ran without a break */
  int64_t start_ns, end_ns;
  uint64_t before_ns; /* length of all stretches before this one */
};

struct compute {
  struct sl_statement *kernels; /* by start */
  int64_t next_start_ns, next_end_ns;
  bool has_next;
  struct stretch *stretches; /* apart from each other, by start; those below `first` are over for good */
  size_t first, count, capacity;
};

static int next_read(struct compute *compute, struct sl_error *error) {
  int r = sl_statement_step(compute->kernels, error);
  compute->has_next = r > 0;
  if (r > 0) {
    compute->next_start_ns = sl_column_int(compute->kernels, 0);
    compute->next_end_ns = sl_column_int(compute->kernels, 1);
  }
  return r < 0 ? r : 0;
}

static int next_take(struct compute *compute, struct sl_error *error) {
  struct stretch *last = compute->count ? &compute->stretches[compute->count - 1] : NULL;
  if (last && compute->next_start_ns <= last->end_ns) {
    if (compute->next_end_ns > last->end_ns)
      last->end_ns = compute->next_end_ns;
    return next_read(compute, error);
  }
  uint64_t before_ns = last ? last->before_ns + ((uint64_t)last->end_ns - (uint64_t)last->start_ns) : 0;
  if (compute->count == compute->capacity && compute->first > compute->capacity / 2) {
    compute->count -= compute->first;
    memmove(compute->stretches, compute->stretches + compute->first, compute->count * sizeof *compute->stretches);
    compute->first = 0;
  }
  if (compute->count == compute->capacity) {
    size_t capacity = compute->capacity ? 2 * compute->capacity : 256;
    void *larger = realloc(compute->stretches, capacity * sizeof *compute->stretches);
    if (!larger)
      return sl_no_memory(error);
    compute->stretches = larger;
    compute->capacity = capacity;
  }
  compute->stretches[compute->count++] = (struct stretch){compute->next_start_ns, compute->next_end_ns, before_ns};
  return next_read(compute, error);
}

/* How long compute kernels had run before this instant, which is in no stretch that is over. */
static uint64_t busy_before(const struct compute *compute, int64_t at_ns) {
  size_t low = compute->first, high = compute->count;
  while (low < high) { /* the first stretch that starts at it or later */
    size_t middle = low + (high - low) / 2;
    if (compute->stretches[middle].start_ns < at_ns)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == compute->first)
    return low < compute->count ? compute->stretches[low].before_ns : 0;
  const struct stretch *in = &compute->stretches[low - 1];
  int64_t until = at_ns < in->end_ns ? at_ns : in->end_ns;
  return in->before_ns + ((uint64_t)until - (uint64_t)in->start_ns);
}

/* Collectives come by start: what ended before this one's is over for those behind it as well. */
static int exposed_find(struct compute *compute, int64_t start_ns, int64_t end_ns, int64_t *out,
                        struct sl_error *error) {
  int r = 0;
  while (r == 0 && compute->has_next && compute->next_start_ns < end_ns)
    r = next_take(compute, error);
  while (compute->first + 1 < compute->count && compute->stretches[compute->first].end_ns <= start_ns)
    compute->first++;
  uint64_t hidden = busy_before(compute, end_ns) - busy_before(compute, start_ns);
  *out = (int64_t)((uint64_t)end_ns - (uint64_t)start_ns - hidden);
  return r;
}

/* alone: all of the rank's kernels ran on this device, so its collectives did, too. */
static int device_write(struct sl_db *db, int64_t rank, int64_t before, int64_t device, bool alone,
                        struct sl_error *error) {
  struct sl_statement *collectives = NULL, *update = NULL;
  struct compute compute = {0};
  int r = sl_db_prepare(db,
                        "SELECT start_ns, end_ns FROM kernel WHERE rowid > :before AND device = :device AND " IS_COMPUTE
                        " ORDER BY start_ns",
                        &compute.kernels, error);
  if (r == 0)
    r = sl_db_prepare(db,
                      "SELECT id, start_ns, end_ns FROM collective WHERE id >= :rank << 40 AND id < :rank + 1 << 40"
                      " AND end_ns >= start_ns"
                      " AND (:alone OR (stream, start_ns) IN (SELECT stream, start_ns FROM kernel WHERE rowid > :before"
                      "  AND device = :device AND instr(name, 'nccl')))"
                      " ORDER BY start_ns",
                      &collectives, error);
  if (r == 0)
    r = sl_db_prepare(db, "UPDATE collective SET exposed_ns = :exposed WHERE id = :id", &update, error);
  if (r < 0)
    goto finish;
  sl_bind_named_int(compute.kernels, ":before", before);
  sl_bind_named_int(compute.kernels, ":device", device);
  sl_bind_named_int(collectives, ":rank", rank);
  sl_bind_named_int(collectives, ":before", before);
  sl_bind_named_int(collectives, ":device", device);
  sl_bind_named_int(collectives, ":alone", alone);
  r = next_read(&compute, error);
  while (r >= 0 && (r = sl_statement_step(collectives, error)) > 0) {
    int64_t exposed_ns;
    r = exposed_find(&compute, sl_column_int(collectives, 1), sl_column_int(collectives, 2), &exposed_ns, error);
    if (r < 0)
      break;
    sl_bind_named_int(update, ":exposed", exposed_ns);
    sl_bind_named_int(update, ":id", sl_column_int(collectives, 0));
    r = sl_statement_run(update, error);
  }
finish:
  compute.kernels = sl_statement_close(compute.kernels);
  collectives = sl_statement_close(collectives);
  update = sl_statement_close(update);
  free(compute.stretches);
  return r;
}

int sl_exposed_time_write(struct sl_ledger_writer *writer, struct sl_error *error) {
  struct sl_db *db = sl_ledger_writer_db(writer);
  struct sl_statement *devices = NULL;
  int64_t rank = sl_ledger_writer_rank(writer), before;
  if (!sl_ledger_writer_computes(writer, &before))
    return 0;
  /* Of each device: whether compute kernels ran there, and whether it is the only one. */
  int r = sl_db_prepare(db,
                        "SELECT device, count(*) OVER () = 1, compute FROM (SELECT device, max(" IS_COMPUTE
                        ") AS compute FROM kernel WHERE rowid > :before GROUP BY device)",
                        &devices, error);
  if (r < 0)
    return r;
  sl_bind_named_int(devices, ":before", before);
  while (r >= 0 && (r = sl_statement_step(devices, error)) > 0)
    if (sl_column_int(devices, 2))
      r = device_write(db, rank, before, sl_column_int(devices, 0), sl_column_int(devices, 1), error);
  devices = sl_statement_close(devices);
  return r;
}

/* Kept while rows are written, as long as all of them pass by. */
#include "rank_sums.h"

#include "ledger_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void step_add(struct sl_rank_sums *sums, const struct sl_period_row *row) {
  if (!sums->steps || row->step < sums->first_step)
    sums->first_step = row->step;
  if (!sums->steps || row->step > sums->last_step)
    sums->last_step = row->step;
  sums->steps++;
  sums->steps_in_full += row->same_as < 0;
  sums->steps_agreed += row->checked == 1;
  sums->steps_differed += row->checked == 0;
}

static uint64_t higher(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* Rows of periods that waited come after later ones: of equal peaks the first in time counts. */
static bool is_higher(uint64_t bytes, uint64_t period, bool has_other, uint64_t other_bytes, uint64_t other_period) {
  return !has_other || bytes > other_bytes || (bytes == other_bytes && period < other_period);
}

void sl_rank_sums_period(struct sl_rank_sums *sums, const struct sl_period_row *row) {
  const uint64_t bytes = row->peak.allocated_bytes;
  if (row->kind == SL_PERIOD_step)
    step_add(sums, row);
  sums->periods++;
  sums->peak_device_bytes = higher(sums->peak_device_bytes, row->peak_device_bytes);
  if (!row->recorded)
    return;
  if (is_higher(bytes, row->period, sums->recorded, sums->peak.allocated_bytes, sums->peak_period))
    sums->peak_period = row->period;
  sums->recorded = true;
  sums->peak.allocated_bytes = higher(sums->peak.allocated_bytes, bytes);
  sums->peak.active_bytes = higher(sums->peak.active_bytes, row->peak.active_bytes);
  if (row->kind == SL_PERIOD_step &&
      is_higher(bytes, row->period, sums->steps_recorded, sums->step_peak_bytes, sums->step_period)) {
    sums->step_period = row->period;
    sums->step_peak_bytes = bytes;
    sums->steps_recorded = true;
  }
  if (row->drivers_pool)
    return;
  sums->cached = true;
  sums->peak.requested_bytes = higher(sums->peak.requested_bytes, row->peak.requested_bytes);
  sums->peak.reserved_bytes = higher(sums->peak.reserved_bytes, row->peak.reserved_bytes);
}

int sl_rank_sums_collective(struct sl_rank_sums *sums, const struct sl_collective_total_row *row) {
  struct sl_collective_total_row *sum = sums->collectives, *end = sum + sums->collective_count;
  while (sum < end &&
         (sum->has_comm != row->has_comm || sum->comm != row->comm || strcmp(sum->operation, row->operation) != 0))
    sum++;
  if (sum == end) {
    sum = reallocarray(sums->collectives, sums->collective_count + 1, sizeof *sum);
    if (!sum)
      return -ENOMEM;
    sums->collectives = sum;
    sum += sums->collective_count++;
    *sum = (struct sl_collective_total_row){.has_comm = row->has_comm, .comm = row->comm, .operation = row->operation};
  }
  sum->calls += row->calls;
  sum->bytes += row->bytes;
  sum->timed += row->timed;
  sum->duration_ns += row->duration_ns;
  return 0;
}

void sl_rank_sums_clear(struct sl_rank_sums *sums) {
  free(sums->collectives);
  *sums = (struct sl_rank_sums){0};
}

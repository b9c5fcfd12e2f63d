/* Kept while rows are written, as long as all of them pass by. */
#include "rank_sums.h"

#include "ledger_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sl_rank_sums_step(struct sl_rank_sums *sums, const struct sl_step_row *row) {
  if (!sums->steps || row->step < sums->first_step)
    sums->first_step = row->step;
  if (!sums->steps || row->step > sums->last_step)
    sums->last_step = row->step;
  sums->steps++;
  sums->steps_in_full += row->same_as < 0;
  sums->steps_agreed += row->checked == 1;
  sums->steps_differed += row->checked == 0;
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

/*
 * How long a transfer takes is the time of the rank that came last: the others' includes their waiting. So a collective
 * that only one of several ranks has tells nothing yet.
 */
#include "live_run.h"

#include <stdlib.h>
#include <string.h>

struct part { /* of a collective, on one rank */
  struct sl_live_collective call;
  size_t process;
  const char *host;
};

static int compare_calls(const struct sl_live_collective *a, const struct sl_live_collective *b) {
  if (a->comm != b->comm)
    return a->comm < b->comm ? -1 : 1;
  if (a->seq != b->seq)
    return a->seq < b->seq ? -1 : 1;
  if (a->bytes != b->bytes)
    return a->bytes < b->bytes ? -1 : 1;
  return strcmp(a->operation, b->operation);
}

static int compare_parts(const void *left, const void *right) {
  const struct part *a = left, *b = right;
  int order = compare_calls(&a->call, &b->call);
  if (order)
    return order;
  return a->call.start_ns < b->call.start_ns ? -1 : a->call.start_ns > b->call.start_ns;
}

static int slowest_first(const void *left, const void *right) {
  const struct sl_live_slow *a = left, *b = right;
  return a->transfer_ns < b->transfer_ns ? 1 : a->transfer_ns > b->transfer_ns ? -1 : 0;
}

/* Parts come in the order of their start. */
static struct sl_live_slow sum_up(const struct sl_live_run *run, const struct part *parts, size_t count,
                                  struct sl_live_late *late) {
  const struct part *first = parts, *last = &parts[count - 1];
  struct sl_live_slow slow = {
      .operation = first->call.operation,
      .module = first->call.module,
      .bytes = first->call.bytes,
      .step = first->call.step,
      .transfer_ns = UINT64_MAX,
      .last_rank = -1,
      .ranks = (uint32_t)count,
  };
  bool one_host = true;
  for (size_t i = 0; i < count; i++) {
    const struct sl_live_collective *call = &parts[i].call;
    uint64_t time = (call->end_ns - call->start_ns) / call->kernel_calls;
    if (time < slow.transfer_ns)
      slow.transfer_ns = time;
    one_host &= strcmp(parts[i].host, first->host) == 0;
  }
  if (count < 2 || !one_host)
    return slow;
  slow.spread_ns = last->call.start_ns - first->call.start_ns;
  for (size_t i = 0; i < count; i++)
    late[parts[i].process].collectives++;
  if (slow.spread_ns) {
    slow.last_rank = run->processes[last->process].rank;
    late[last->process].last++;
    late[last->process].late_ns += slow.spread_ns;
  }
  return slow;
}

/* A collective's time on one of its ranks may be all waiting. Sends and receives are known one by one. */
static bool is_told(const struct sl_live_run *run, const struct part *parts, size_t count) {
  const char *operation = parts->call.operation;
  return count > 1 || run->count == 1 || strcmp(operation, "Send") == 0 || strcmp(operation, "Recv") == 0;
}

/* Those of the last steps of all ranks, and only as much memory. NULL: no memory. */
static struct part *parts_collect(const struct sl_live_run *run, struct sl_live_collective *calls, size_t *count) {
  int64_t newest = -1;
  size_t most = 0;
  *count = 0;
  for (size_t i = 0; i < run->count; i++) {
    const size_t found = sl_live_rank_collectives(run->processes[i].live, calls, SL_LIVE_COLLECTIVES);
    most += found;
    for (size_t c = 0; c < found; c++)
      if (calls[c].step > newest)
        newest = calls[c].step;
  }
  struct part *parts = calloc(most ? most : 1, sizeof *parts);
  for (size_t i = 0; i < run->count && parts; i++) {
    const char *host = sl_live_rank_host(run->processes[i].live);
    const size_t found = sl_live_rank_collectives(run->processes[i].live, calls, SL_LIVE_COLLECTIVES);
    for (size_t c = 0; c < found; c++)
      if (calls[c].step > newest - SL_LIVE_COLLECTIVE_STEPS)
        parts[(*count)++] = (struct part){calls[c], i, host ? host : ""};
  }
  return parts;
}

size_t sl_live_run_collectives(const struct sl_live_run *run, struct sl_live_slow *slow, size_t capacity,
                               struct sl_live_late *late) {
  struct sl_live_collective *calls = calloc(SL_LIVE_COLLECTIVES, sizeof *calls);
  struct part *parts = NULL;
  struct sl_live_slow *all = NULL;
  size_t groups = 0, kept = 0;
  memset(late, 0, run->count * sizeof *late);
  if (!calls || !(parts = parts_collect(run, calls, &kept))) {
    groups = SIZE_MAX;
    goto finish;
  }
  if (kept)
    qsort(parts, kept, sizeof *parts, compare_parts);
  all = calloc(kept ? kept : 1, sizeof *all);
  if (!all) {
    groups = SIZE_MAX;
    goto finish;
  }
  for (size_t i = 0, next; i < kept; i = next) {
    for (next = i + 1; next < kept && compare_calls(&parts[i].call, &parts[next].call) == 0;)
      next++;
    all[groups] = sum_up(run, &parts[i], next - i, late);
    groups += is_told(run, &parts[i], next - i);
  }
  if (groups)
    qsort(all, groups, sizeof *all, slowest_first);
  groups = groups < capacity ? groups : capacity;
  memcpy(slow, all, groups * sizeof *all);
finish:
  free(calls);
  free(parts);
  free(all);
  return groups;
}

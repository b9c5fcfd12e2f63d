#include "commands/nccl_groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_GROUP SIZE_MAX
#define MODULE_OF_RANK 0xffffffffff /* of a module's id: its number in its rank */

struct maker {
  const struct sl_nccl_calls *calls;
  size_t *group_of;                  /* by call; NO_GROUP: not asked for */
  size_t *starts;                    /* by group: its first place in `order`; one more than there are */
  const struct sl_nccl_call **order; /* calls of one group after the other */
  int64_t *numbers;                  /* room for one a call */
  bool *seen;                        /* by rank's place + 1 */
  int *keys;                         /* by module: the number of its key */
};

/* ---- which group a call is in ---- */

static int compare_keys(const void *a, const void *b) {
  const struct sl_nccl_module *one = *(const struct sl_nccl_module *const *)a;
  const struct sl_nccl_module *other = *(const struct sl_nccl_module *const *)b;
  return strcmp(one->key, other->key);
}

/* Modules of all ranks go by their name and class. Returns the number of keys, or -ENOMEM. */
static int number_modules(struct maker *maker) {
  int count = maker->calls->module_count, keys = 0;
  const struct sl_nccl_module **modules = malloc(((size_t)count + 1) * sizeof *modules);
  maker->keys = malloc(((size_t)count + 1) * sizeof *maker->keys);
  if (!modules || !maker->keys) {
    free(modules);
    return -ENOMEM;
  }
  for (int i = 0; i < count; i++)
    modules[i] = &maker->calls->modules[i];
  qsort(modules, (size_t)count, sizeof *modules, compare_keys);
  for (int i = 0; i < count; i++) {
    keys += i > 0 && strcmp(modules[i]->key, modules[i - 1]->key) != 0;
    maker->keys[modules[i] - maker->calls->modules] = keys;
  }
  free(modules);
  return count ? keys + 1 : 0;
}

/* Fills group_of; *count is the number of groups, some of which may be empty. */
static int assign(struct maker *maker, enum sl_nccl_grouping grouping, int64_t rank, int64_t step, size_t *count) {
  const struct sl_nccl_calls *calls = maker->calls;
  size_t operations = (size_t)calls->operation_count, group = 0;
  int keys = grouping == SL_NCCL_BY_MODULE ? number_modules(maker) : 0;
  if (keys < 0)
    return keys;
  for (size_t i = 0; i < calls->count; i++) {
    const struct sl_nccl_call *call = &calls->calls[i];
    size_t operation = (size_t)call->operation;
    switch (grouping) {
    case SL_NCCL_BY_OPERATION: group = operation; break;
    case SL_NCCL_BY_MODULE:
      group = (size_t)(call->module < 0 ? keys : maker->keys[call->module]) * operations + operation;
      break;
    case SL_NCCL_BY_COMMUNICATOR: group += i > 0 && call->comm != calls->calls[i - 1].comm; break; /* so sorted */
    }
    maker->group_of[i] = (rank < 0 || call->rank == rank) && (step < 0 || call->step == step) ? group : NO_GROUP;
  }
  *count = grouping == SL_NCCL_BY_OPERATION ? operations
           : grouping == SL_NCCL_BY_MODULE  ? ((size_t)keys + 1) * operations
                                            : group + 1;
  return 0;
}

/* Puts the calls into `order`, group by group. */
static int gather(struct maker *maker, size_t groups) {
  size_t place = 0;
  maker->starts = calloc(groups + 2, sizeof *maker->starts);
  if (!maker->starts)
    return -ENOMEM;
  for (size_t i = 0; i < maker->calls->count; i++)
    if (maker->group_of[i] != NO_GROUP)
      maker->starts[maker->group_of[i] + 2]++;
  for (size_t i = 2; i < groups + 2; i++) {
    place += maker->starts[i];
    maker->starts[i] = place;
  }
  /* One behind its group until here; filling the group moves it to the group's end, the next one's start. */
  for (size_t i = 0; i < maker->calls->count; i++)
    if (maker->group_of[i] != NO_GROUP)
      maker->order[maker->starts[maker->group_of[i] + 1]++] = &maker->calls->calls[i];
  return 0;
}

/* ---- what a group's calls cost ---- */

static void swap(int64_t *a, int64_t *b) {
  int64_t kept = *a;
  *a = *b;
  *b = kept;
}

/* The lower one of two medians, by quickselect; changes the order of values. */
static int64_t median(int64_t *values, size_t count) {
  if (!count)
    return SL_NO_NUMBER;
  size_t wanted = (count - 1) / 2, low = 0, high = count - 1;
  while (low < high) {
    int64_t pivot = values[low + (high - low) / 2];
    size_t i = low, j = high;
    while (i <= j) {
      while (values[i] < pivot)
        i++;
      while (values[j] > pivot)
        j--;
      if (i > j)
        break;
      swap(&values[i++], &values[j]);
      if (j-- == 0)
        break;
    }
    /* Now values up to j are at most the pivot, those from i at least; between them all equal it. */
    if (j != SIZE_MAX && wanted <= j)
      high = j;
    else if (wanted >= i)
      low = i;
    else
      break;
  }
  return values[wanted];
}

static double sum(double total, double more) {
  return more < 0 ? total : total < 0 ? more : total + more;
}

static double rate(double bytes, double ns) {
  return bytes < 0 || ns <= 0 ? -1 : bytes / ns;
}

static void medians(struct maker *maker, struct sl_nccl_group *group, const struct sl_nccl_call **calls, size_t count) {
  const struct sl_nccl_meeting *meetings = maker->calls->meetings;
  size_t delays = 0, spreads = 0;
  for (size_t i = 0; i < count; i++)
    if (sl_nccl_duration(calls[i]) != SL_NO_NUMBER)
      maker->numbers[group->timed++] = sl_nccl_duration(calls[i]);
  group->median_ns = median(maker->numbers, (size_t)group->timed);
  for (size_t i = 0; i < count; i++)
    if (calls[i]->start_ns != SL_NO_NUMBER && calls[i]->enqueue_ns != SL_NO_NUMBER)
      maker->numbers[delays++] = calls[i]->start_ns - calls[i]->enqueue_ns;
  group->median_delay_ns = median(maker->numbers, delays);
  for (size_t i = 0; i < count; i++) {
    int64_t spread = sl_nccl_spread(&meetings[calls[i]->meeting]);
    if (spread == SL_NO_NUMBER)
      continue;
    maker->numbers[spreads++] = spread;
    if (spread > group->max_spread_ns) /* SL_NO_NUMBER is less than any */
      group->max_spread_ns = spread;
  }
  group->median_spread_ns = median(maker->numbers, spreads);
}

static void group_make(struct maker *maker, struct sl_nccl_group *group, const struct sl_nccl_call **calls,
                       size_t count) {
  double transfer_ns = 0, algorithm_bytes = -1, bus_bytes = -1;
  *group = (struct sl_nccl_group){
      .operation = maker->calls->operations[calls[0]->operation],
      .module = calls[0]->module,
      .comm = calls[0]->comm,
      .nranks = SL_NO_NUMBER,
      .count = (int64_t)count,
      .bytes = SL_NO_NUMBER,
      .max_spread_ns = SL_NO_NUMBER,
      .total_ns = -1,
      .exposed_ns = -1,
      .exposable_ns = -1,
  };
  memset(maker->seen, 0, ((size_t)maker->calls->rank_count + 1) * sizeof *maker->seen);
  for (size_t i = 0; i < count; i++) {
    const struct sl_nccl_call *call = calls[i];
    double transfer = maker->calls->meetings[call->meeting].transfer_ns;
    group->ranks += !maker->seen[call->place + 1];
    maker->seen[call->place + 1] = true;
    if (call->module < group->module)
      group->module = call->module;
    if (call->nranks > group->nranks)
      group->nranks = call->nranks;
    if (call->bytes != SL_NO_NUMBER)
      group->bytes = call->bytes + (group->bytes == SL_NO_NUMBER ? 0 : group->bytes);
    group->total_ns = sum(group->total_ns, sl_nccl_share(call));
    group->exposed_ns = sum(group->exposed_ns, sl_nccl_exposed_share(call));
    if (sl_nccl_exposed_share(call) >= 0)
      group->exposable_ns = sum(group->exposable_ns, sl_nccl_share(call));
    if (transfer <= 0)
      continue;
    transfer_ns += transfer;
    algorithm_bytes = sum(algorithm_bytes, sl_nccl_algorithm_bytes(maker->calls, call));
    bus_bytes = sum(bus_bytes, sl_nccl_bus_bytes(maker->calls, call));
  }
  group->algorithm_rate = rate(algorithm_bytes, transfer_ns);
  group->bus_rate = rate(bus_bytes, transfer_ns);
  group->place = group->module < 0 ? INT64_MAX : maker->calls->modules[group->module].id & MODULE_OF_RANK;
  medians(maker, group, calls, count);
}

/* ---- in which order ---- */

static int by_time(const void *a, const void *b) {
  const struct sl_nccl_group *one = a, *other = b;
  if (one->total_ns != other->total_ns)
    return one->total_ns > other->total_ns ? -1 : 1;
  int order = strcmp(one->operation, other->operation);
  return order ? order : (one->comm > other->comm) - (one->comm < other->comm);
}

static int by_module(const void *a, const void *b) {
  const struct sl_nccl_group *one = a, *other = b;
  if (one->place != other->place)
    return one->place < other->place ? -1 : 1;
  return strcmp(one->operation, other->operation);
}

void sl_nccl_groups_sort(struct sl_nccl_group *groups, size_t count, enum sl_nccl_grouping grouping) {
  qsort(groups, count, sizeof *groups, grouping == SL_NCCL_BY_MODULE ? by_module : by_time);
}

int sl_nccl_groups_make(const struct sl_nccl_calls *calls, enum sl_nccl_grouping grouping, int64_t rank, int64_t step,
                        struct sl_nccl_group **out, size_t *count) {
  struct maker maker = {.calls = calls};
  size_t groups = 0;
  int r = -ENOMEM;
  *out = NULL;
  *count = 0;
  maker.group_of = malloc((calls->count + 1) * sizeof *maker.group_of);
  maker.order = malloc((calls->count + 1) * sizeof *maker.order);
  maker.numbers = malloc((calls->count + 1) * sizeof *maker.numbers);
  maker.seen = malloc(((size_t)calls->rank_count + 1) * sizeof *maker.seen);
  if (!maker.group_of || !maker.order || !maker.numbers || !maker.seen)
    goto finish;
  r = assign(&maker, grouping, rank, step, &groups);
  if (r == 0)
    r = gather(&maker, groups);
  if (r < 0)
    goto finish;
  *out = malloc((groups + 1) * sizeof **out);
  if (!*out) {
    r = -ENOMEM;
    goto finish;
  }
  for (size_t i = 0; i < groups; i++)
    if (maker.starts[i + 1] > maker.starts[i])
      group_make(&maker, &(*out)[(*count)++], maker.order + maker.starts[i], maker.starts[i + 1] - maker.starts[i]);
  sl_nccl_groups_sort(*out, *count, grouping);
finish:
  free(maker.group_of);
  free(maker.starts);
  free(maker.order);
  free(maker.numbers);
  free(maker.seen);
  free(maker.keys);
  return r;
}

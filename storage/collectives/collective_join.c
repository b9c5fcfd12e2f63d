/*
 * A call waits for its kernel, and a kernel for its call, as long as memory allows it. What finds no partner is written
 * as it is, and never guessed.
 */
#include "collective_join.h"

#include "storage/grow.h"
#include "storage/hash_table.h"
#include "storage/log/nccl_payload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
  WAITING_MAX = 1 << 20,  /* calls, and kernels, that are kept for a partner, unless another number was set */
  WAITING_SOME = 1 << 10, /* and from so many calls on, only those of stretches that are not long past */
  LONG_PAST = 4,          /* kernels of so many later stretches have come */
};
#define CLOCK_SLACK_NS 100000u /* the device's clock may be this far behind the host's */

/*
 * ncclDevKernel_AllGather_RING_LL(…), mangled or not. Algorithm and protocol in the name are those of the variant that
 * was compiled in line, not of the call: NCCL runs all others through it as well. So only the operation is read.
 */
static int kernel_kind(const char *name) {
  const char *at = strstr(name, "nccl");
  at = at ? strstr(at, "Kernel_") : NULL;
  if (!at)
    return -1;
  at += strlen("Kernel_");
  const char *word;
  for (int i = 0; (word = sl_kernel_word(i)); i++) {
    size_t length = strlen(word);
    char after = strncmp(at, word, length) == 0 ? at[length] : 'x';
    if (!((after >= 'A' && after <= 'Z') || (after >= 'a' && after <= 'z')))
      return i;
  }
  return -1;
}

/*
 * Launches while the step was the same. Device times are switched on and off where a step begins only, so a launch
 * between timed ones of its stretch was timed as well, if anything ran.
 */
struct stretch {
  bool timed;
  uint32_t first, last; /* of the timed launches' correlation ids, the lowest and the highest */
};

struct sl_launch {
  uint32_t correlation;
  size_t stretch; /* index */
  bool done;      /* the kernel's record has come */
  int kind;
  uint32_t stream;
  uint64_t start_ns, end_ns; /* end 0: it had not ended when the log did */
  struct sl_batch *batch;
  struct sl_launch *next;
  UT_hash_handle hh;
};

struct sl_batch {
  struct sl_call *calls, *last_call;
  struct sl_call *undetailed; /* all before it are detailed; NULL: it is to be looked for from the first one on */
  struct sl_launch *launches;
  uint32_t call_count, launch_count, waiting; /* waiting: launches without their kernel's record */
  bool closed;
  uint64_t number;              /* in the order of closing */
  struct sl_batch **list;       /* of the joiner that it is in */
  struct sl_batch *prev, *next; /* in it, oldest first */
};

struct loose_kernel { /* of NCCL, and no launch speaks of it */
  int kind;
  uint32_t stream;
  uint64_t start_ns, end_ns;
};

struct sl_joiner {
  sl_collective_sink *sink;
  void *sink_context;
  struct sl_batch *open;      /* batches to which calls or launches may be added */
  struct sl_batch *waiting;   /* closed ones that wait for their kernels */
  struct sl_batch *loose;     /* closed ones without launches */
  struct sl_launch *launches; /* by correlation: those whose kernel has not come */
  uint64_t closed_calls, closed_batches;
  uint32_t waiting_max; /* older ones are given up */
  struct loose_kernel *kernels;
  size_t kernel_count;
  bool given_up; /* calls or kernels were dropped: counting them says nothing any more */
  bool launched; /* launches are recorded */
  bool ended;    /* the process ended in order: all its times were handed over */
  bool replayed; /* and kernels of NCCL came that none of them speaks of: CUDA graphs run those again */
  struct stretch *stretches;
  size_t stretch_count, timed_count; /* timed_count: up to the last one that has timed launches */
  int64_t step;                      /* of the last stretch */
};

struct sl_joiner *sl_joiner_new(sl_collective_sink *sink, void *context) {
  struct sl_joiner *joiner = calloc(1, sizeof *joiner);
  if (joiner) {
    joiner->sink = sink;
    joiner->sink_context = context;
    joiner->waiting_max = WAITING_MAX;
  }
  return joiner;
}

void sl_joiner_ended(struct sl_joiner *joiner) {
  joiner->ended = true;
}

void sl_joiner_limit(struct sl_joiner *joiner, uint32_t waiting) {
  joiner->waiting_max = waiting;
}

static void batch_free(struct sl_joiner *joiner, struct sl_batch *batch) {
  struct sl_call *call, *next_call;
  struct sl_launch *launch, *next_launch;
  LL_FOREACH_SAFE(batch->calls, call, next_call)
  free(call);
  LL_FOREACH_SAFE(batch->launches, launch, next_launch) {
    if (!launch->done)
      HASH_DEL(joiner->launches, launch);
    free(launch);
  }
  if (batch->closed)
    joiner->closed_calls -= batch->call_count;
  DL_DELETE(*batch->list, batch);
  free(batch);
}

struct sl_joiner *sl_joiner_free(struct sl_joiner *joiner) {
  if (!joiner)
    return NULL;
  while (joiner->open)
    batch_free(joiner, joiner->open);
  while (joiner->waiting)
    batch_free(joiner, joiner->waiting);
  while (joiner->loose)
    batch_free(joiner, joiner->loose);
  free(joiner->kernels);
  free(joiner->stretches);
  free(joiner);
  return NULL;
}

/* ---- batches ---- */

struct sl_batch *sl_batch_new(struct sl_joiner *joiner) {
  struct sl_batch *batch = calloc(1, sizeof *batch);
  if (batch) {
    batch->list = &joiner->open;
    DL_APPEND(joiner->open, batch);
  }
  return batch;
}

void sl_batch_add(struct sl_batch *batch, struct sl_call *call) {
  call->next = NULL;
  call->batch = batch;
  if (batch->last_call)
    batch->last_call->next = call;
  else
    batch->calls = call;
  batch->last_call = call;
  batch->call_count++;
}

struct sl_call *sl_batch_take_last(struct sl_batch *batch) {
  struct sl_call *taken = batch->last_call, *before = NULL;
  if (!taken)
    return NULL;
  if (batch->calls != taken)
    for (before = batch->calls; before->next != taken;)
      before = before->next;
  if (before)
    before->next = NULL;
  else
    batch->calls = NULL;
  batch->last_call = before;
  batch->call_count--;
  if (batch->undetailed == taken)
    batch->undetailed = before;
  return taken;
}

struct sl_call *sl_batch_calls(const struct sl_batch *batch) {
  return batch->calls;
}

struct sl_call *sl_batch_undetailed(struct sl_batch *batch) {
  struct sl_call *call = batch->undetailed ? batch->undetailed : batch->calls;
  while (call && call->detailed && call->next)
    call = call->next;
  batch->undetailed = call;
  return call;
}

bool sl_batch_launched(const struct sl_batch *batch) {
  return batch->launch_count > 0;
}

const struct sl_launch *sl_batch_last_launch(const struct sl_batch *batch) {
  return batch->launches;
}

/* The stretch that a batch's launch is part of: a new one where the step is another than the last launch's. */
static int stretch_enter(struct sl_joiner *joiner, const struct sl_batch *batch, struct sl_error *error) {
  int64_t step = batch->last_call ? batch->last_call->row.step : joiner->step;
  if (joiner->stretch_count && step == joiner->step)
    return 0;
  struct stretch *added = SL_LIST_ADD(joiner->stretches, joiner->stretch_count);
  if (!added)
    return sl_no_memory(error);
  *added = (struct stretch){.timed = false};
  joiner->step = step;
  return 0;
}

int sl_batch_launch(struct sl_joiner *joiner, struct sl_batch *batch, uint32_t correlation, struct sl_error *error) {
  struct sl_launch *known;
  HASH_FIND(hh, joiner->launches, &correlation, sizeof correlation, known);
  if (known)
    return 0; /* ids come round after 2^32; the first one still waits */
  if (stretch_enter(joiner, batch, error) < 0)
    return -ENOMEM;
  struct sl_launch *launch = calloc(1, sizeof *launch);
  if (!launch)
    return sl_no_memory(error);
  launch->correlation = correlation;
  SL_HASH_ADD(joiner->launches, correlation, launch);
  if (!launch)
    return sl_no_memory(error);
  launch->stretch = joiner->stretch_count - 1;
  joiner->launched = true;
  launch->batch = batch;
  launch->next = batch->launches;
  batch->launches = launch;
  batch->launch_count++;
  batch->waiting++;
  return 0;
}

/* ---- what a batch's kernels say about its calls ---- */

static bool runs(const struct sl_launch *launch, int kind) {
  return launch->done && launch->kind == kind && kind >= 0;
}

static bool has_kernel_of(const struct sl_batch *batch, int kind) {
  const struct sl_launch *launch;
  LL_FOREACH(batch->launches, launch)
  if (runs(launch, kind))
    return true;
  return false;
}

/* Whether all calls, or all of one kind, are of one communicator; -1: of any kind. */
static bool one_communicator(const struct sl_batch *batch, int kind) {
  const struct sl_call *call, *first = NULL;
  LL_FOREACH(batch->calls, call) {
    if (kind >= 0 && call->kind != kind)
      continue;
    if (!first)
      first = call;
    else if (first->row.has_comm != call->row.has_comm || first->row.comm != call->row.comm)
      return false;
  }
  return true;
}

/*
 * Whether a launch ran a call. Where the profiler did not tell, the kernels named after the call's operation did; where
 * none is, NCCL has run it in another one's, so all of them did. Kernels of several communicators can only be told
 * apart by their names.
 */
static bool served(const struct sl_batch *batch, const struct sl_call *call, const struct sl_launch *launch) {
  if (call->launch)
    return launch == call->launch;
  bool by_name = has_kernel_of(batch, call->kind);
  if (batch->launch_count > 1 && !one_communicator(batch, by_name ? call->kind : -1))
    return false;
  return !by_name || runs(launch, call->kind);
}

/*
 * Why no kernel's time was found for a call. A call in a CUDA graph that is being captured launches as any other, but
 * nothing runs; later the graph's kernels do.
 */
static const char *untimed(const struct sl_joiner *joiner, const struct sl_batch *batch) {
  const struct sl_launch *launch;
  bool timed = false, between = true;
  if (!batch->launch_count)
    return joiner->launched ? "no_launch" : "not_recorded";
  if (!joiner->timed_count)
    return "not_recorded";
  LL_FOREACH(batch->launches, launch) {
    const struct stretch *stretch = &joiner->stretches[launch->stretch];
    if (launch->done)
      return "ambiguous";
    /* Times of the last ones may not have come when a process is killed. */
    timed = timed || stretch->timed || (!joiner->ended && launch->stretch >= joiner->timed_count);
    between = between && stretch->timed && launch->correlation > stretch->first && launch->correlation < stretch->last;
  }
  return !timed ? "untimed_step" : between && joiner->replayed ? "captured" : "no_kernel";
}

static void call_join(const struct sl_batch *batch, struct sl_call *call) {
  struct sl_collective_row *row = &call->row;
  const struct sl_launch *launch, *first = NULL;
  const struct sl_call *other;
  bool ended = true;
  LL_FOREACH(batch->launches, launch) {
    if (!launch->done || !served(batch, call, launch))
      continue;
    if (!first || launch->start_ns < row->start_ns)
      row->start_ns = launch->start_ns;
    if (launch->end_ns > row->end_ns)
      row->end_ns = launch->end_ns;
    ended = ended && launch->end_ns;
    first = first ? first : launch;
  }
  if (!first)
    return;
  if (!ended)
    row->end_ns = 0;
  row->stream = first->stream;
  row->joined_by = "correlation";
  LL_FOREACH(batch->calls, other)
  row->kernel_calls += served(batch, other, first);
}

static int batch_write(struct sl_joiner *joiner, struct sl_batch *batch, struct sl_error *error) {
  struct sl_call *call;
  int r = 0;
  LL_FOREACH(batch->calls, call) {
    if (batch->launch_count)
      call_join(batch, call);
    if (!call->row.joined_by)
      call->row.untimed = untimed(joiner, batch);
    if (r == 0)
      r = joiner->sink(joiner->sink_context, &call->row, error);
  }
  batch_free(joiner, batch);
  return r;
}

int sl_batch_close(struct sl_joiner *joiner, struct sl_batch *batch, struct sl_error *error) {
  batch->closed = true;
  joiner->closed_calls += batch->call_count;
  if (!batch->calls || (batch->launch_count && !batch->waiting))
    return batch_write(joiner, batch, error);
  DL_DELETE(joiner->open, batch);
  batch->list = batch->launch_count ? &joiner->waiting : &joiner->loose;
  batch->number = ++joiner->closed_batches;
  DL_APPEND(*batch->list, batch);
  int r = 0;
  while (r == 0 && joiner->closed_calls > joiner->waiting_max) {
    struct sl_batch *launched = joiner->waiting, *loose = joiner->loose;
    joiner->given_up = true;
    r = batch_write(joiner, !loose || (launched && launched->number < loose->number) ? launched : loose, error);
  }
  return r;
}

static int loose_kernel_add(struct sl_joiner *joiner, const struct loose_kernel *kernel, struct sl_error *error) {
  if (joiner->kernel_count >= joiner->waiting_max) {
    joiner->given_up = true;
    return 0;
  }
  struct loose_kernel *added = SL_LIST_ADD(joiner->kernels, joiner->kernel_count);
  if (!added)
    return sl_no_memory(error);
  *added = *kernel;
  return 0;
}

static void stretch_timed(struct stretch *stretch, uint32_t correlation) {
  if (!stretch->timed || correlation < stretch->first)
    stretch->first = correlation;
  if (!stretch->timed || correlation > stretch->last)
    stretch->last = correlation;
  stretch->timed = true;
}

/* Where only some steps are timed, most launches wait for a kernel that will never come. */
static int long_past_write(struct sl_joiner *joiner, struct sl_error *error) {
  int r = 0;
  for (struct sl_batch *batch; r == 0 && (batch = joiner->waiting) && joiner->closed_calls > WAITING_SOME;) {
    if (batch->launches->stretch + LONG_PAST >= joiner->timed_count)
      break;
    r = batch_write(joiner, batch, error);
  }
  return r;
}

int sl_joiner_kernel(struct sl_joiner *joiner, const struct sl_event_kernel *event, const char *name,
                     struct sl_error *error) {
  if (!event->start_ns || !strstr(name, "nccl"))
    return 0;
  struct loose_kernel kernel = {kernel_kind(name), event->stream, event->start_ns, event->end_ns};
  struct sl_launch *launch;
  HASH_FIND(hh, joiner->launches, &event->correlation, sizeof event->correlation, launch);
  if (!launch) {
    joiner->replayed = joiner->replayed || joiner->launched;
    return kernel.kind < 0 ? 0 : loose_kernel_add(joiner, &kernel, error);
  }
  size_t stretch = launch->stretch;
  stretch_timed(&joiner->stretches[stretch], event->correlation);
  HASH_DEL(joiner->launches, launch);
  launch->done = true;
  launch->kind = kernel.kind;
  launch->stream = kernel.stream;
  launch->start_ns = kernel.start_ns;
  launch->end_ns = kernel.end_ns;
  struct sl_batch *batch = launch->batch;
  batch->waiting--;
  int r = batch->closed && !batch->waiting ? batch_write(joiner, batch, error) : 0;
  if (stretch < joiner->timed_count)
    return r;
  joiner->timed_count = stretch + 1;
  return r < 0 ? r : long_past_write(joiner, error);
}

/* ---- without launches: by order ---- */

static int compare_starts(const void *a, const void *b) {
  const struct loose_kernel *one = a, *other = b;
  return (one->start_ns > other->start_ns) - (one->start_ns < other->start_ns);
}

static int compare_ids(const void *a, const void *b) {
  const struct sl_call *one = *(struct sl_call *const *)a, *other = *(struct sl_call *const *)b;
  return (one->row.id > other->row.id) - (one->row.id < other->row.id);
}

/* The calls of a kind that no launch speaks of, in call order. NULL without memory. */
static struct sl_call **loose_calls(const struct sl_joiner *joiner, int kind, size_t *count) {
  struct sl_call **calls = malloc((joiner->closed_calls + 1) * sizeof *calls), *call;
  const struct sl_batch *batch;
  *count = 0;
  if (!calls)
    return NULL;
  DL_FOREACH(joiner->loose, batch)
  LL_FOREACH(batch->calls, call)
  if (call->kind == kind)
    calls[(*count)++] = call;
  qsort(calls, *count, sizeof *calls, compare_ids);
  return calls;
}

static int join_by_order(struct sl_joiner *joiner, int kind, struct sl_error *error) {
  size_t call_count, kernel_count = 0;
  struct sl_call **calls = loose_calls(joiner, kind, &call_count);
  struct loose_kernel *kernels = malloc((joiner->kernel_count + 1) * sizeof *kernels);
  int r = calls && kernels ? 0 : sl_no_memory(error);
  if (r < 0)
    goto finish;
  for (size_t i = 0; i < joiner->kernel_count; i++) /* sorted already */
    if (joiner->kernels[i].kind == kind)
      kernels[kernel_count++] = joiner->kernels[i];
  if (kernel_count != call_count)
    goto finish;
  for (size_t i = 0; i < call_count; i++)
    if (kernels[i].stream != kernels[0].stream || kernels[i].start_ns + CLOCK_SLACK_NS < calls[i]->row.enqueue_ns)
      goto finish;
  for (size_t i = 0; i < call_count; i++) {
    struct sl_collective_row *row = &calls[i]->row;
    row->start_ns = kernels[i].start_ns;
    row->end_ns = kernels[i].end_ns;
    row->stream = kernels[i].stream;
    row->kernel_calls = 1;
    row->joined_by = "order";
  }
finish:
  free(calls);
  free(kernels);
  return r;
}

int sl_joiner_finish(struct sl_joiner *joiner, struct sl_error *error) {
  int r = 0;
  if (joiner->kernel_count)
    qsort(joiner->kernels, joiner->kernel_count, sizeof *joiner->kernels, compare_starts);
  for (int kind = 0; sl_kernel_word(kind) && r == 0 && joiner->kernel_count && !joiner->given_up; kind++)
    r = join_by_order(joiner, kind, error);
  while (joiner->waiting && r == 0)
    r = batch_write(joiner, joiner->waiting, error);
  while (joiner->loose && r == 0)
    r = batch_write(joiner, joiner->loose, error);
  return r;
}

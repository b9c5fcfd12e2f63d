/* What each event does to the calls that a rank's threads make of NCCL, and to its communicators. */
#include "collectives.h"

#include "calls_under_way.h"
#include "plugin/format/events.h"
#include "profiled_calls.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sl_collectives *sl_collectives_new(const struct sl_log *log, struct sl_ledger_writer *writer,
                                          struct sl_phases *phases, const struct sl_collective_host *host) {
  struct sl_collectives *c = calloc(1, sizeof *c);
  if (!c)
    return NULL;
  c->log = log;
  c->writer = writer;
  c->phases = phases;
  c->host = *host;
  c->schemas = sl_nccl_schemas_new(log);
  c->joiner = sl_joiner_new(host->row, host->context);
  c->communicators = sl_communicators_new();
  return c->schemas && c->joiner && c->communicators ? c : sl_collectives_free(c);
}

struct sl_collectives *sl_collectives_free(struct sl_collectives *c) {
  if (!c)
    return NULL;
  SL_HASH_FREE(c->threads);
  c->communicators = sl_communicators_free(c->communicators);
  c->joiner = sl_joiner_free(c->joiner);
  c->schemas = sl_nccl_schemas_free(c->schemas);
  free(c);
  return NULL;
}

void sl_collectives_limit(struct sl_collectives *c, uint32_t waiting) {
  sl_joiner_limit(c->joiner, waiting);
}

/* ---- communicators ---- */

/* After a range with a communicator was opened or closed, or got it. */
static void work_changed(struct sl_collectives *c, struct thread *thread) {
  struct sl_communicator *now = sl_calls_communicator(thread);
  sl_communicators_worker(c->communicators, thread->works_for, now);
  thread->works_for = now;
}

/* ---- device memory of communicators ---- */

/*
 * NCCL allocates on the calling thread and on threads of its own that serve it. So: the communicator that this thread
 * works for, else the only one that any thread works for, else the only one there is.
 */
static struct sl_communicator *owner_of_memory(const struct sl_collectives *c, uint32_t number) {
  struct sl_communicator *found = NULL;
  const struct thread *thread;
  HASH_FIND(hh, c->threads, &number, sizeof number, thread);
  if (thread && (found = sl_calls_communicator(thread)))
    return found;
  return sl_communicators_only(c->communicators);
}

static int memory_begin(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_driver_allocation *e = event->payload;
  bool on_device = e->kind == SL_MEMORY_DEVICE || e->kind == SL_MEMORY_MANAGED || e->kind == SL_MEMORY_ARRAY;
  if (!on_device || strncmp(sl_log_string(c->log, e->owner), "libnccl", 7) != 0)
    return 0;
  struct sl_communicator *owner = owner_of_memory(c, event->thread);
  sl_communicators_release(c->communicators, e->address); /* its free was not recorded */
  if (!owner)
    return 0;
  return sl_communicators_hold(c->communicators, owner, e->address, e->bytes) < 0 ? sl_no_memory(error) : 0;
}

/* ---- ranges ---- */

/*
 * Buffers by size, for FSDP's own ranges: an all-gather receives into an allocation of its range, ranks times as large
 * as the message, and a reduce-scatter sends from one; the latter receives into one of the message's size.
 */
static void buffers_guess(struct sl_collectives *c, struct sl_collective_row *row, const struct sl_phase *phase,
                          int64_t ranks) {
  enum sl_phase_point point = strcmp(row->operation, "AllGather") == 0       ? SL_POINT_all_gather
                              : strcmp(row->operation, "ReduceScatter") == 0 ? SL_POINT_reduce_scatter
                                                                             : SL_POINT_none;
  while (phase && phase->point != point)
    phase = phase->parent;
  if (!phase || point == SL_POINT_none || !row->bytes)
    return;
  uint64_t whole = c->host.sized(c->host.context, phase, row->bytes, ranks > 1 ? (uint64_t)ranks : 0);
  if (point == SL_POINT_all_gather) {
    row->receive_allocation = whole;
  } else {
    row->send_allocation = whole;
    row->receive_allocation = c->host.sized(c->host.context, phase, row->bytes, 1);
  }
}

static enum range_kind range_kind(const char *operation) {
  if (sl_kernel_kind(operation) >= 0)
    return RANGE_operation;
  if (sl_nccl_makes_communicator(operation))
    return RANGE_initialisation;
  return strcmp(operation, "GroupEnd") == 0 ? RANGE_group_end : RANGE_other;
}

static const struct range *operation_open(const struct thread *thread) {
  for (uint32_t i = thread->depth < MAX_DEPTH ? thread->depth : MAX_DEPTH; i-- > 0;)
    if (thread->ranges[i].kind == RANGE_operation)
      return &thread->ranges[i];
  return NULL;
}

static int range_pushed(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_range_push *push = event->payload;
  struct thread *thread = sl_calls_thread(c, event->thread);
  if (!thread)
    return sl_no_memory(error);
  const char *name = sl_log_string(c->log, push->name);
  if (strncmp(name, "nccl", 4) == 0)
    name += 4;
  struct range range = {.kind = range_kind(name)};
  int r = 0;
  c->ranges_seen = true;
  if (range.kind == RANGE_initialisation) {
    range.communicator = sl_communicator_new(c->communicators);
    if (!range.communicator)
      return sl_no_memory(error);
    range.communicator->start_ns = event->time_ns;
  }
  if (range.kind == RANGE_operation && !operation_open(thread)) {
    range.call = sl_call_new(c, event, name);
    r = range.call ? sl_call_add(c, thread, range.call, error) : sl_no_memory(error);
    if (r < 0)
      return r;
  }
  if (thread->depth < MAX_DEPTH)
    thread->ranges[thread->depth] = range;
  thread->depth++;
  thread->last = range;
  thread->last_is_open = true;
  if (range.communicator)
    work_changed(c, thread);
  return 0;
}

static int range_popped(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  struct thread *thread = sl_calls_thread(c, event->thread);
  if (!thread)
    return sl_no_memory(error);
  if (!thread->depth)
    return 0; /* recording began inside of it */
  thread->depth--;
  thread->last_is_open = false;
  thread->last = thread->depth < MAX_DEPTH ? thread->ranges[thread->depth] : (struct range){0};
  thread->last.communicator = sl_communicator_itself(thread->last.communicator);
  if (thread->last.communicator)
    work_changed(c, thread);
  if (thread->last.kind == RANGE_initialisation && thread->last.communicator && !thread->last.communicator->end_ns)
    thread->last.communicator->end_ns = event->time_ns;
  /* What a call or a group launches, it launches before it returns. */
  bool ends = (thread->last.kind == RANGE_operation && thread->last.call) || thread->last.kind == RANGE_group_end;
  if (!ends || !thread->batch || !sl_batch_launched(thread->batch))
    return 0;
  thread->last.call = NULL; /* may be written and gone */
  return sl_calls_batch_end(c, thread, error);
}

/* A stretch of the thread's events is missing: its ranges end here, and what a call launched then is not known. */
static int stretch_lost(struct sl_collectives *c, uint32_t number, struct sl_error *error) {
  struct thread *thread;
  HASH_FIND(hh, c->threads, &number, sizeof number, thread);
  if (!thread)
    return 0;
  thread->depth = 0;
  thread->last = (struct range){0};
  thread->last_is_open = false;
  work_changed(c, thread);
  return thread->batch ? sl_calls_batch_end(c, thread, error) : 0;
}

static int payload_come(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_range_payload *e = event->payload;
  struct sl_nccl_payload payload;
  struct thread *thread;
  HASH_FIND(hh, c->threads, &event->thread, sizeof event->thread, thread);
  if (!thread)
    return 0;
  sl_nccl_payload_read(c->schemas, e->domain, e->schema, e + 1, e->length, &payload);
  thread->last.communicator = sl_communicator_itself(thread->last.communicator);
  if (payload.has_communicator && thread->last.kind == RANGE_initialisation && thread->last.communicator) {
    if (sl_communicator_name(c->communicators, thread->last.communicator, payload.communicator) < 0)
      return sl_no_memory(error);
    thread->last.communicator = sl_communicator_itself(thread->last.communicator);
  }
  struct sl_communicator *communicator =
      payload.has_communicator ? sl_communicator_of(c->communicators, payload.communicator) : thread->last.communicator;
  if (payload.has_communicator && !communicator)
    return sl_no_memory(error);
  if (communicator && payload.ranks > 0) {
    communicator->ranks = payload.ranks;
    communicator->rank = payload.rank;
  }
  struct sl_call *call = thread->last.call;
  if (!call || call->row.has_comm || call->row.has_bytes)
    return 0;
  call->row.has_bytes = payload.has_bytes;
  call->row.bytes = payload.bytes;
  call->row.reduction = payload.reduction;
  call->row.root = payload.root;
  call->row.peer = payload.peer;
  buffers_guess(c, &call->row, sl_phases_current(c->phases, event->thread), communicator ? communicator->ranks : -1);
  if (!payload.has_communicator)
    return 0;
  call->row.has_comm = true;
  call->row.comm = payload.communicator;
  if (thread->last_is_open && thread->depth <= MAX_DEPTH) {
    thread->ranges[thread->depth - 1].communicator = communicator; /* its allocations are this communicator's */
    work_changed(c, thread);
  }
  return sl_call_number(communicator, &call->row, error);
}

/* ---- launches ---- */

static int launched(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_launch *launch = event->payload;
  struct thread *thread = sl_calls_thread(c, event->thread);
  if (!thread)
    return sl_no_memory(error);
  const struct range *operation = operation_open(thread);
  thread->launch_ns = event->time_ns;
  if (!c->ranges_seen) {
    int r = thread->batch ? sl_calls_batch_end(c, thread, error) : 0;
    sl_calls_batch_is(c, thread, sl_batch_new(c->joiner));
    if (!thread->batch)
      return sl_no_memory(error);
    return r < 0 ? r : sl_batch_launch(c->joiner, thread->batch, launch->correlation, error);
  }
  if (operation && operation->call && thread->batch && !sl_batch_launched(thread->batch) &&
      sl_batch_calls(thread->batch) != operation->call) {
    /* A call that launches by itself: those before it are not part of it, and their launches were not recorded. */
    struct sl_call *call = sl_batch_take_last(thread->batch);
    int r = sl_calls_batch_end(c, thread, error);
    sl_calls_batch_is(c, thread, sl_batch_new(c->joiner));
    if (!thread->batch) {
      free(call);
      return sl_no_memory(error);
    }
    sl_batch_add(thread->batch, call);
    if (r < 0)
      return r;
  }
  if (!thread->batch) {
    /* Nonblocking communicators launch on a thread of their own: for the only thread that has calls waiting. */
    if (!c->waiting || c->waiting->next)
      return 0;
    thread = c->waiting;
  }
  return sl_batch_launch(c->joiner, thread->batch, launch->correlation, error);
}

/* ---- all together ---- */

/* Numbers go on behind a part of the log that was dropped. */
static int counts_jump(struct sl_collectives *c, const struct sl_event_kept_calls *e, struct sl_error *error) {
  struct sl_communicator *communicator = sl_communicator_of(c->communicators, e->communicator);
  if (!communicator)
    return sl_no_memory(error);
  if (e->kind == SL_CALLS_collectives) {
    communicator->calls = e->calls;
    return 0;
  }
  struct sl_peer_count *peer = sl_communicator_peer(communicator, e->peer, e->kind == SL_CALLS_receives);
  if (!peer)
    return sl_no_memory(error);
  peer->count = e->calls;
  return 0;
}

static bool is_nccl(const struct sl_collectives *c, uint32_t domain) {
  return domain < DOMAIN_LIMIT && c->is_nccl[domain];
}

int sl_collectives_event(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const void *payload = event->payload;
  switch (event->type) {
  case SL_EVENT_nvtx_domain: {
    const struct sl_event_nvtx_domain *domain = payload;
    if (domain->id < DOMAIN_LIMIT && strcmp(sl_log_string(c->log, domain->name), "NCCL") == 0)
      c->is_nccl[domain->id] = true;
    return 0;
  }
  case SL_EVENT_nvtx_schema_entry: return sl_nccl_schemas_add(c->schemas, payload) < 0 ? sl_no_memory(error) : 0;
  case SL_EVENT_range_push:
    return is_nccl(c, ((const struct sl_event_range_push *)payload)->domain) ? range_pushed(c, event, error) : 0;
  case SL_EVENT_range_pop:
    return is_nccl(c, ((const struct sl_event_range_pop *)payload)->domain) ? range_popped(c, event, error) : 0;
  case SL_EVENT_range_payload:
    return is_nccl(c, ((const struct sl_event_range_payload *)payload)->domain) ? payload_come(c, event, error) : 0;
  case SL_EVENT_gap: return sl_log_is_lost_stretch(c->log, payload) ? stretch_lost(c, event->thread, error) : 0;
  case SL_EVENT_launch: return launched(c, event, error);
  case SL_EVENT_kernel: {
    const struct sl_event_kernel *kernel = payload;
    return sl_joiner_kernel(c->joiner, kernel, sl_log_string(c->log, kernel->name), error);
  }
  case SL_EVENT_process_end: sl_joiner_ended(c->joiner); return 0;
  case SL_EVENT_nccl_call: return sl_profiled_call(c, event, error);
  case SL_EVENT_nccl_communicator: return sl_profiled_communicator(c, event, error);
  case SL_EVENT_kept_calls: return event->salvaged ? counts_jump(c, payload, error) : 0;
  case SL_EVENT_driver_allocation: return memory_begin(c, event, error);
  case SL_EVENT_driver_free:
    sl_communicators_release(c->communicators, ((const struct sl_event_driver_free *)payload)->address);
    return 0;
  default: return 0;
  }
}

uint64_t sl_collectives_last_id(const struct sl_collectives *c) {
  return c->last_id;
}

int sl_collectives_finish(struct sl_collectives *c, struct sl_error *error) {
  int r = 0;
  for (struct thread *thread = c->threads; thread && r == 0; thread = thread->hh.next)
    if (thread->batch)
      r = sl_calls_batch_end(c, thread, error);
  if (r == 0)
    r = sl_joiner_finish(c->joiner, error);
  const struct sl_communicator *communicator = sl_communicators_list(c->communicators);
  for (; communicator && r == 0; communicator = communicator->next)
    if (communicator->named)
      r = sl_put_communicator(c->writer,
                              &(struct sl_communicator_cells){
                                  .comm = (int64_t)communicator->id,
                                  .nranks = sl_known(communicator->ranks, -1),
                                  .comm_rank = sl_known(communicator->rank, -1),
                                  .name = communicator->name,
                                  .device_bytes = (int64_t)communicator->peak,
                                  .start_ns = sl_known((int64_t)communicator->start_ns, 0),
                                  .end_ns = sl_known((int64_t)communicator->end_ns, 0),
                              },
                              error);
  return r;
}

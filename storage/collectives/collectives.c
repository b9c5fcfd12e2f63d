/* One file above the usual size: calls, groups and launches of a thread are one state, which each kind of event
 * changes. */
#include "collectives.h"

#include "collective_join.h"
#include "communicators.h"
#include "plugin/format/events.h"
#include "storage/hash_table.h"
#include "storage/log/nccl_payload.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
  MAX_DEPTH = 16,
  DOMAIN_LIMIT = 256,
  CALLS_LOOKED_AT = 4096, /* for the one that the profiler speaks of: mostly it is the first */
};

enum range_kind { RANGE_other, RANGE_operation, RANGE_initialisation, RANGE_group_end };

struct range { /* an open range of NCCL */
  enum range_kind kind;
  struct sl_call *call;                 /* of an operation; NULL inside of another operation */
  struct sl_communicator *communicator; /* of an initialisation, and of an operation once its payload is read */
};

struct thread {
  uint32_t thread;
  struct range ranges[MAX_DEPTH];
  uint32_t depth;                    /* may exceed MAX_DEPTH: deeper ranges are counted only */
  struct range last;                 /* that of the range event just before: a payload belongs to it */
  bool last_is_open;                 /* and that event was its push */
  struct sl_batch *batch;            /* calls that are not launched yet, or to which a launch may still be added */
  struct thread *prev, *next;        /* those that have such calls */
  struct sl_communicator *works_for; /* of the innermost open range that has one; NULL: none */
  uint64_t launch_ns;                /* of its last launch */
  UT_hash_handle hh;
};

struct sl_collectives {
  const struct sl_log *log;
  struct sl_phases *phases;
  struct sl_collective_host host;
  struct sl_ledger_writer *writer;
  struct sl_nccl_schemas *schemas;
  struct sl_joiner *joiner;
  bool is_nccl[DOMAIN_LIMIT];
  bool ranges_seen;                 /* NVTX tells the calls */
  struct thread *threads, *waiting; /* waiting: those with a batch */
  struct sl_communicators *communicators;
  uint64_t last_id;
};

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
  c->joiner = sl_joiner_new(writer);
  c->communicators = sl_communicators_new();
  return c->schemas && c->joiner && c->communicators ? c : sl_collectives_free(c);
}

struct sl_collectives *sl_collectives_free(struct sl_collectives *c) {
  if (!c)
    return NULL;
  struct thread *thread, *next_thread;
  HASH_ITER(hh, c->threads, thread, next_thread) {
    HASH_DEL(c->threads, thread);
    free(thread);
  }
  c->communicators = sl_communicators_free(c->communicators);
  c->joiner = sl_joiner_free(c->joiner);
  c->schemas = sl_nccl_schemas_free(c->schemas);
  free(c);
  return NULL;
}

void sl_collectives_limit(struct sl_collectives *c, uint32_t waiting) {
  sl_joiner_limit(c->joiner, waiting);
}

static struct thread *thread_of(struct sl_collectives *c, uint32_t number) {
  struct thread *thread;
  HASH_FIND(hh, c->threads, &number, sizeof number, thread);
  if (!thread && (thread = calloc(1, sizeof *thread))) {
    thread->thread = number;
    SL_HASH_ADD(c->threads, thread, thread);
  }
  return thread;
}

static int no_memory(struct sl_error *error) {
  return sl_no_memory(error);
}

/* ---- communicators ---- */

static struct sl_communicator *communicator_at_work(const struct thread *thread) {
  for (uint32_t i = thread->depth < MAX_DEPTH ? thread->depth : MAX_DEPTH; i-- > 0;)
    if (thread->ranges[i].communicator)
      return sl_communicator_itself(thread->ranges[i].communicator);
  return NULL;
}

/* After a range with a communicator was opened or closed, or got it. */
static void work_changed(struct sl_collectives *c, struct thread *thread) {
  struct sl_communicator *now = communicator_at_work(thread);
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
  if (thread && (found = communicator_at_work(thread)))
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
  return sl_communicators_hold(c->communicators, owner, e->address, e->bytes) < 0 ? no_memory(error) : 0;
}

/* ---- calls ---- */

static bool is_point_to_point(const char *operation) {
  return strcmp(operation, "Send") == 0 || strcmp(operation, "Recv") == 0;
}

/* Collectives count within their communicator, sends and receives with their peer: so the two ends' numbers agree. */
static int call_number(struct sl_communicator *communicator, struct sl_collective_row *row, struct sl_error *error) {
  if (!is_point_to_point(row->operation)) {
    row->seq = (int64_t)communicator->calls++;
    return 0;
  }
  if (row->peer < 0)
    return 0;
  struct sl_peer_count *peer = sl_communicator_peer(communicator, row->peer, row->operation[0] == 'R');
  if (!peer)
    return no_memory(error);
  row->seq = (int64_t)peer->count++;
  return 0;
}

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

static struct sl_call *call_new(struct sl_collectives *c, const struct sl_event *event, const char *operation) {
  struct sl_call *call = calloc(1, sizeof *call);
  if (!call)
    return NULL;
  const struct sl_phase *phase = sl_phases_current(c->phases, event->thread);
  call->kind = sl_kernel_kind(operation);
  call->row = (struct sl_collective_row){
      .id = ++c->last_id,
      .operation = operation,
      .seq = -1,
      .root = -1,
      .peer = -1,
      .step = sl_phases_step(c->phases),
      .module = sl_phase_module(phase),
      .phase = phase ? phase->id : 0,
      .tid = event->tid,
      .enqueue_ns = event->time_ns,
  };
  return call;
}

static void batch_is(struct sl_collectives *c, struct thread *thread, struct sl_batch *batch) {
  if (thread->batch && !batch)
    DL_DELETE(c->waiting, thread);
  else if (!thread->batch && batch)
    DL_APPEND(c->waiting, thread);
  thread->batch = batch;
}

static int batch_end(struct sl_collectives *c, struct thread *thread, struct sl_error *error) {
  struct sl_batch *batch = thread->batch;
  batch_is(c, thread, NULL);
  return sl_batch_close(c->joiner, batch, error);
}

/*
 * Adds a call to what its thread will launch next; or, where only NCCL's profiler tells the calls, which it does behind
 * each launch, to what it has launched last.
 */
static int call_add(struct sl_collectives *c, struct thread *thread, struct sl_call *call, struct sl_error *error) {
  int r = 0;
  if (thread->batch && sl_batch_launched(thread->batch) == c->ranges_seen) {
    r = batch_end(c, thread, error);
    thread->last.call = NULL;
  }
  if (!thread->batch)
    batch_is(c, thread, sl_batch_new(c->joiner));
  if (!thread->batch) {
    free(call);
    return no_memory(error);
  }
  sl_batch_add(thread->batch, call);
  return r;
}

/* ---- ranges ---- */

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
  struct thread *thread = thread_of(c, event->thread);
  if (!thread)
    return no_memory(error);
  const char *name = sl_log_string(c->log, push->name);
  if (strncmp(name, "nccl", 4) == 0)
    name += 4;
  struct range range = {.kind = range_kind(name)};
  int r = 0;
  c->ranges_seen = true;
  if (range.kind == RANGE_initialisation) {
    range.communicator = sl_communicator_new(c->communicators);
    if (!range.communicator)
      return no_memory(error);
    range.communicator->start_ns = event->time_ns;
  }
  if (range.kind == RANGE_operation && !operation_open(thread)) {
    range.call = call_new(c, event, name);
    r = range.call ? call_add(c, thread, range.call, error) : no_memory(error);
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
  struct thread *thread = thread_of(c, event->thread);
  if (!thread)
    return no_memory(error);
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
  return batch_end(c, thread, error);
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
      return no_memory(error);
    thread->last.communicator = sl_communicator_itself(thread->last.communicator);
  }
  struct sl_communicator *communicator =
      payload.has_communicator ? sl_communicator_of(c->communicators, payload.communicator) : thread->last.communicator;
  if (payload.has_communicator && !communicator)
    return no_memory(error);
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
  return call_number(communicator, &call->row, error);
}

/* ---- launches ---- */

static int launched(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_launch *launch = event->payload;
  struct thread *thread = thread_of(c, event->thread);
  if (!thread)
    return no_memory(error);
  const struct range *operation = operation_open(thread);
  thread->launch_ns = event->time_ns;
  if (!c->ranges_seen) {
    int r = thread->batch ? batch_end(c, thread, error) : 0;
    batch_is(c, thread, sl_batch_new(c->joiner));
    if (!thread->batch)
      return no_memory(error);
    return r < 0 ? r : sl_batch_launch(c->joiner, thread->batch, launch->correlation, error);
  }
  if (operation && operation->call && thread->batch && !sl_batch_launched(thread->batch) &&
      sl_batch_calls(thread->batch) != operation->call) {
    /* A call that launches by itself: those before it are not part of it, and their launches were not recorded. */
    struct sl_call *call = sl_batch_take_last(thread->batch);
    int r = batch_end(c, thread, error);
    batch_is(c, thread, sl_batch_new(c->joiner));
    if (!thread->batch) {
      free(call);
      return no_memory(error);
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

/* ---- NCCL's profiler ---- */

/* Bytes of one element; 0 for types that are not known. */
static uint64_t datatype_bytes(const char *name) {
  static const struct {
    const char *name;
    uint8_t bytes;
  } types[] = {
      {"ncclInt8", 1},  {"ncclChar", 1},   {"ncclUint8", 1},   {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1},
      {"ncclInt32", 4}, {"ncclUint32", 4}, {"ncclFloat32", 4}, {"ncclFloat16", 2},    {"ncclBfloat16", 2},
      {"ncclInt64", 8}, {"ncclUint64", 8}, {"ncclFloat64", 8}, {"ncclInt", 4},        {"ncclHalf", 2},
      {"ncclFloat", 4}, {"ncclDouble", 8},
  };
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcmp(name, types[i].name) == 0)
      return types[i].bytes;
  return 0;
}

static bool is_about(const struct sl_call *call, const struct sl_event_nccl_call *e, const char *function,
                     uint64_t bytes) {
  const struct sl_collective_row *row = &call->row;
  return !call->detailed && strcmp(row->operation, function) == 0 && (!row->has_comm || row->comm == e->communicator) &&
         (!row->has_bytes || !bytes || row->bytes == bytes) &&
         (!e->point_to_point || row->peer < 0 || row->peer == (int64_t)e->root);
}

/* The first of a thread's waiting calls that the profiler speaks of. */
static struct sl_call *call_among(const struct thread *thread, const struct sl_event_nccl_call *e, const char *function,
                                  uint64_t bytes, unsigned *looked_at) {
  struct sl_call *call = thread->batch ? sl_batch_undetailed(thread->batch) : NULL;
  for (; call && *looked_at < CALLS_LOOKED_AT; call = call->next, ++*looked_at)
    if (is_about(call, e, function, bytes))
      return call;
  return NULL;
}

/* The waiting call that the profiler speaks of: on this thread, else on any. */
static struct sl_call *call_of(struct sl_collectives *c, uint32_t number, const struct sl_event_nccl_call *e,
                               const char *function, uint64_t bytes) {
  struct thread *own, *thread;
  unsigned looked_at = 0;
  HASH_FIND(hh, c->threads, &number, sizeof number, own);
  struct sl_call *call = own ? call_among(own, e, function, bytes, &looked_at) : NULL;
  for (thread = c->waiting; thread && !call && looked_at < CALLS_LOOKED_AT; thread = thread->next, looked_at++)
    call = call_among(thread, e, function, bytes, &looked_at);
  return call;
}

/* The profiler tells the calls of each kernel right behind its launch. NULL where the launch is not known. */
static const struct sl_launch *launch_of(const struct sl_collectives *c, uint32_t number, const struct sl_call *call) {
  const struct thread *thread;
  HASH_FIND(hh, c->threads, &number, sizeof number, thread);
  return thread && thread->batch && call->batch == thread->batch ? sl_batch_last_launch(thread->batch) : NULL;
}

static int profiled(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_nccl_call *e = event->payload;
  const char *function = sl_log_string(c->log, e->function), *datatype = sl_log_string(c->log, e->datatype);
  uint64_t bytes = e->count * datatype_bytes(datatype);
  struct sl_call *call = call_of(c, event->thread, e, function, bytes);
  struct sl_communicator *communicator = e->communicator ? sl_communicator_of(c->communicators, e->communicator) : NULL;
  int r = 0;
  if (e->communicator && !communicator)
    return no_memory(error);
  if (!call) {
    if (c->ranges_seen || sl_kernel_kind(function) < 0)
      return 0; /* a replayed graph's, or one whose range was lost */
    struct thread *thread = thread_of(c, event->thread);
    call = thread ? call_new(c, event, function) : NULL;
    r = call ? call_add(c, thread, call, error) : no_memory(error);
    if (r < 0)
      return r;
    if (sl_batch_launched(thread->batch))
      call->row.enqueue_ns = thread->launch_ns;
  }
  call->launch = launch_of(c, event->thread, call);
  struct sl_collective_row *row = &call->row;
  call->detailed = true;
  row->datatype = *datatype ? datatype : NULL;
  row->algorithm = sl_log_string(c->log, e->algorithm);
  row->protocol = sl_log_string(c->log, e->protocol);
  row->channels = e->channels;
  if (!row->has_bytes && bytes) {
    row->has_bytes = true;
    row->bytes = bytes;
  }
  if (e->point_to_point)
    row->peer = (int32_t)e->root;
  else if (strcmp(function, "Broadcast") == 0 || strcmp(function, "Reduce") == 0)
    row->root = (int32_t)e->root;
  uint64_t send = e->send ? c->host.containing(c->host.context, e->send) : 0;
  uint64_t receive = e->receive ? c->host.containing(c->host.context, e->receive) : 0;
  row->send_allocation = send ? send : row->send_allocation;
  row->receive_allocation = receive ? receive : row->receive_allocation;
  if (!row->has_comm && communicator) {
    row->has_comm = true;
    row->comm = e->communicator;
    r = call_number(communicator, row, error);
  }
  return r;
}

static int communicator_made(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_nccl_communicator *e = event->payload;
  /* Inside of NCCL's own range the id is that range's. */
  struct thread *thread;
  HASH_FIND(hh, c->threads, &event->thread, sizeof event->thread, thread);
  struct sl_communicator *at_work = thread ? communicator_at_work(thread) : NULL;
  if (at_work && !at_work->named && sl_communicator_name(c->communicators, at_work, e->communicator) < 0)
    return no_memory(error);
  struct sl_communicator *communicator = sl_communicator_of(c->communicators, e->communicator);
  if (!communicator)
    return no_memory(error);
  communicator->ranks = e->ranks;
  communicator->rank = e->rank;
  const char *name = sl_log_string(c->log, e->name);
  communicator->name = *name ? name : NULL;
  return 0;
}

/* Numbers go on behind a part of the log that was dropped. */
static int counts_jump(struct sl_collectives *c, const struct sl_event_kept_calls *e, struct sl_error *error) {
  struct sl_communicator *communicator = sl_communicator_of(c->communicators, e->communicator);
  if (!communicator)
    return no_memory(error);
  if (e->kind == SL_CALLS_collectives) {
    communicator->calls = e->calls;
    return 0;
  }
  struct sl_peer_count *peer = sl_communicator_peer(communicator, e->peer, e->kind == SL_CALLS_receives);
  if (!peer)
    return no_memory(error);
  peer->count = e->calls;
  return 0;
}

/* ---- all together ---- */

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
  case SL_EVENT_nvtx_schema_entry: return sl_nccl_schemas_add(c->schemas, payload) < 0 ? no_memory(error) : 0;
  case SL_EVENT_range_push:
    return is_nccl(c, ((const struct sl_event_range_push *)payload)->domain) ? range_pushed(c, event, error) : 0;
  case SL_EVENT_range_pop:
    return is_nccl(c, ((const struct sl_event_range_pop *)payload)->domain) ? range_popped(c, event, error) : 0;
  case SL_EVENT_range_payload:
    return is_nccl(c, ((const struct sl_event_range_payload *)payload)->domain) ? payload_come(c, event, error) : 0;
  case SL_EVENT_launch: return launched(c, event, error);
  case SL_EVENT_kernel: {
    const struct sl_event_kernel *kernel = payload;
    return sl_joiner_kernel(c->joiner, kernel, sl_log_string(c->log, kernel->name), error);
  }
  case SL_EVENT_process_end: sl_joiner_ended(c->joiner); return 0;
  case SL_EVENT_nccl_call: return profiled(c, event, error);
  case SL_EVENT_nccl_communicator: return communicator_made(c, event, error);
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
    if (thread->batch) {
      r = batch_end(c, thread, error);
    }
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

/* One file above the usual size: calls, groups and launches of a thread are one state, which each kind of event
 * changes. */
#include "collectives.h"

#include "collective_join.h"
#include "plugin/events.h"
#include "storage/log/nccl_payload.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum { MAX_DEPTH = 16, DOMAIN_LIMIT = 256 };

struct peer_count { /* sends or receives so far between this rank and a peer */
  struct {
    int64_t peer;
    int64_t receives; /* 1: of receives */
  } key;
  uint64_t count;
  UT_hash_handle hh;
};

struct communicator {
  bool named; /* id is known; an initialisation's is not before it ends */
  uint64_t id;
  int64_t ranks, rank;       /* -1: unknown */
  const char *name;          /* owned by the log; NULL: none */
  uint64_t calls;            /* collectives so far */
  uint64_t held, peak;       /* device memory */
  uint64_t start_ns, end_ns; /* its initialisation, as the thread that asked for it saw it; 0: unknown */
  struct peer_count *peers;
  struct communicator *next;
};

struct held { /* a live driver-level allocation of NCCL */
  uint64_t address, bytes;
  struct communicator *owner;
  UT_hash_handle hh;
};

enum range_kind { RANGE_other, RANGE_operation, RANGE_initialisation, RANGE_group_end };

struct range { /* an open range of NCCL */
  enum range_kind kind;
  struct sl_call *call;              /* of an operation; NULL inside of another operation */
  struct communicator *communicator; /* of an initialisation, and of an operation once its payload is read */
};

struct thread {
  uint32_t thread;
  struct range ranges[MAX_DEPTH];
  uint32_t depth;         /* may exceed MAX_DEPTH: deeper ranges are counted only */
  struct range last;      /* that of the range event just before: a payload belongs to it */
  bool last_is_open;      /* and that event was its push */
  struct sl_batch *batch; /* calls that are not launched yet, or to which a launch may still be added */
  uint64_t launch_ns;     /* of its last launch */
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
  bool ranges_seen; /* NVTX tells the calls */
  struct thread *threads;
  struct communicator *communicators;
  struct held *held;
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
  return c->schemas && c->joiner ? c : sl_collectives_free(c);
}

struct sl_collectives *sl_collectives_free(struct sl_collectives *c) {
  if (!c)
    return NULL;
  struct thread *thread, *next_thread;
  HASH_ITER(hh, c->threads, thread, next_thread) {
    HASH_DEL(c->threads, thread);
    free(thread);
  }
  struct held *held, *next_held;
  HASH_ITER(hh, c->held, held, next_held) {
    HASH_DEL(c->held, held);
    free(held);
  }
  struct communicator *communicator, *next;
  LL_FOREACH_SAFE(c->communicators, communicator, next) {
    struct peer_count *peer, *next_peer;
    HASH_ITER(hh, communicator->peers, peer, next_peer) {
      HASH_DEL(communicator->peers, peer);
      free(peer);
    }
    free(communicator);
  }
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
    HASH_ADD(hh, c->threads, thread, sizeof thread->thread, thread);
  }
  return thread;
}

static int no_memory(struct sl_error *error) {
  return sl_error_set(error, -ENOMEM, "out of memory");
}

/* ---- communicators ---- */

static struct communicator *communicator_new(struct sl_collectives *c) {
  struct communicator *communicator = calloc(1, sizeof *communicator);
  if (!communicator)
    return NULL;
  communicator->ranks = communicator->rank = -1;
  LL_APPEND(c->communicators, communicator);
  return communicator;
}

static struct communicator *communicator_find(const struct sl_collectives *c, uint64_t id) {
  struct communicator *communicator;
  LL_FOREACH(c->communicators, communicator)
  if (communicator->named && communicator->id == id)
    return communicator;
  return NULL;
}

/*
 * The communicator of this id. When a single initialisation has ended without telling its id, as in logs that lack the
 * payloads of ends, a new id is that communicator's.
 */
static struct communicator *communicator_named(struct sl_collectives *c, uint64_t id) {
  struct communicator *communicator = communicator_find(c, id), *nameless = NULL;
  int count = 0;
  if (communicator)
    return communicator;
  LL_FOREACH(c->communicators, communicator)
  if (!communicator->named) {
    nameless = communicator;
    count++;
  }
  communicator = count == 1 ? nameless : communicator_new(c);
  if (!communicator)
    return NULL;
  communicator->named = true;
  communicator->id = id;
  return communicator;
}

/* An initialisation tells its id. What was counted for it goes to the communicator that has the id already. */
static void communicator_name(struct sl_collectives *c, struct communicator *fresh, uint64_t id) {
  struct communicator *known = communicator_find(c, id);
  if (!known || known == fresh) {
    fresh->named = true;
    fresh->id = id;
    return;
  }
  for (struct held *held = c->held; held; held = held->hh.next)
    if (held->owner == fresh)
      held->owner = known;
  if (!known->start_ns) {
    known->start_ns = fresh->start_ns;
    known->end_ns = fresh->end_ns;
  }
  known->held += fresh->held;
  if (known->peak < known->held)
    known->peak = known->held;
  LL_DELETE(c->communicators, fresh);
  for (struct thread *thread = c->threads; thread; thread = thread->hh.next) {
    for (uint32_t i = 0; i < thread->depth && i < MAX_DEPTH; i++)
      if (thread->ranges[i].communicator == fresh)
        thread->ranges[i].communicator = known;
    if (thread->last.communicator == fresh)
      thread->last.communicator = known;
  }
  free(fresh);
}

/* ---- device memory of communicators ---- */

static struct communicator *communicator_at_work(const struct thread *thread) {
  for (uint32_t i = thread->depth < MAX_DEPTH ? thread->depth : MAX_DEPTH; i-- > 0;)
    if (thread->ranges[i].communicator)
      return thread->ranges[i].communicator;
  return NULL;
}

/*
 * NCCL allocates on the calling thread and on threads of its own that serve it. So: the communicator that this thread
 * works for, else the only one that any thread works for, else the only one there is.
 */
static struct communicator *owner_of_memory(const struct sl_collectives *c, uint32_t number) {
  struct communicator *found = NULL;
  const struct thread *thread;
  HASH_FIND(hh, c->threads, &number, sizeof number, thread);
  if (thread && (found = communicator_at_work(thread)))
    return found;
  for (thread = c->threads; thread; thread = thread->hh.next) {
    struct communicator *working = communicator_at_work(thread);
    if (working && found && working != found)
      return NULL;
    if (working)
      found = working;
  }
  if (!found && c->communicators && !c->communicators->next)
    found = c->communicators;
  return found;
}

static void memory_end(struct sl_collectives *c, uint64_t address) {
  struct held *held;
  HASH_FIND(hh, c->held, &address, sizeof address, held);
  if (!held)
    return;
  held->owner->held -= held->bytes;
  HASH_DEL(c->held, held);
  free(held);
}

static int memory_begin(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_driver_allocation *e = event->payload;
  bool on_device = e->kind == SL_MEMORY_DEVICE || e->kind == SL_MEMORY_MANAGED || e->kind == SL_MEMORY_ARRAY;
  if (!on_device || strncmp(sl_log_string(c->log, e->owner), "libnccl", 7) != 0)
    return 0;
  struct communicator *owner = owner_of_memory(c, event->thread);
  memory_end(c, e->address); /* its free was not recorded */
  if (!owner)
    return 0;
  struct held *held = malloc(sizeof *held);
  if (!held)
    return no_memory(error);
  held->address = e->address;
  held->bytes = e->bytes;
  held->owner = owner;
  HASH_ADD(hh, c->held, address, sizeof held->address, held);
  owner->held += e->bytes;
  if (owner->held > owner->peak)
    owner->peak = owner->held;
  return 0;
}

/* ---- calls ---- */

static bool is_point_to_point(const char *operation) {
  return strcmp(operation, "Send") == 0 || strcmp(operation, "Recv") == 0;
}

/* How often its peer has been sent to, or received from. NULL: no memory. */
static struct peer_count *peer_of(struct communicator *communicator, int64_t number, bool receives) {
  struct peer_count *peer, search;
  memset(&search, 0, sizeof search);
  search.key.peer = number;
  search.key.receives = receives;
  HASH_FIND(hh, communicator->peers, &search.key, sizeof search.key, peer);
  if (!peer && (peer = malloc(sizeof *peer))) {
    *peer = search;
    HASH_ADD(hh, communicator->peers, key, sizeof peer->key, peer);
  }
  return peer;
}

/* Collectives count within their communicator, sends and receives with their peer: so the two ends' numbers agree. */
static int call_number(struct communicator *communicator, struct sl_collective_row *row, struct sl_error *error) {
  if (!is_point_to_point(row->operation)) {
    row->seq = (int64_t)communicator->calls++;
    return 0;
  }
  if (row->peer < 0)
    return 0;
  struct peer_count *peer = peer_of(communicator, row->peer, row->operation[0] == 'R');
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

/*
 * Adds a call to what its thread will launch next; or, where only NCCL's profiler tells the calls, which it does behind
 * each launch, to what it has launched last.
 */
static int call_add(struct sl_collectives *c, struct thread *thread, struct sl_call *call, struct sl_error *error) {
  int r = 0;
  if (thread->batch && sl_batch_launched(thread->batch) == c->ranges_seen) {
    r = sl_batch_close(c->joiner, thread->batch, error);
    thread->batch = NULL;
    thread->last.call = NULL;
  }
  if (!thread->batch)
    thread->batch = sl_batch_new(c->joiner);
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
    range.communicator = communicator_new(c);
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
  if (thread->last.kind == RANGE_initialisation && thread->last.communicator && !thread->last.communicator->end_ns)
    thread->last.communicator->end_ns = event->time_ns;
  /* What a call or a group launches, it launches before it returns. */
  bool ends = (thread->last.kind == RANGE_operation && thread->last.call) || thread->last.kind == RANGE_group_end;
  if (!ends || !thread->batch || !sl_batch_launched(thread->batch))
    return 0;
  thread->last.call = NULL; /* may be written and gone */
  struct sl_batch *batch = thread->batch;
  thread->batch = NULL;
  return sl_batch_close(c->joiner, batch, error);
}

static int payload_come(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_range_payload *e = event->payload;
  struct sl_nccl_payload payload;
  struct thread *thread;
  HASH_FIND(hh, c->threads, &event->thread, sizeof event->thread, thread);
  if (!thread)
    return 0;
  sl_nccl_payload_read(c->schemas, e->domain, e->schema, e + 1, e->length, &payload);
  if (payload.has_communicator && thread->last.kind == RANGE_initialisation && thread->last.communicator)
    communicator_name(c, thread->last.communicator, payload.communicator);
  struct communicator *communicator =
      payload.has_communicator ? communicator_named(c, payload.communicator) : thread->last.communicator;
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
  if (thread->last_is_open && thread->depth <= MAX_DEPTH)
    thread->ranges[thread->depth - 1].communicator = communicator; /* its allocations are this communicator's */
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
    int r = thread->batch ? sl_batch_close(c->joiner, thread->batch, error) : 0;
    thread->batch = sl_batch_new(c->joiner);
    if (!thread->batch)
      return no_memory(error);
    return r < 0 ? r : sl_batch_launch(c->joiner, thread->batch, launch->correlation, error);
  }
  if (operation && operation->call && thread->batch && !sl_batch_launched(thread->batch) &&
      sl_batch_calls(thread->batch) != operation->call) {
    /* A call that launches by itself: those before it are not part of it, and their launches were not recorded. */
    struct sl_call *call = sl_batch_take_last(thread->batch);
    int r = sl_batch_close(c->joiner, thread->batch, error);
    thread->batch = sl_batch_new(c->joiner);
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
    struct thread *waiting = NULL;
    for (struct thread *other = c->threads; other; other = other->hh.next) {
      if (other->batch && waiting)
        return 0;
      if (other->batch)
        waiting = other;
    }
    if (!waiting)
      return 0;
    thread = waiting;
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

/* The waiting call that the profiler speaks of: on this thread, else on any. */
static struct sl_call *call_of(struct sl_collectives *c, uint32_t number, const struct sl_event_nccl_call *e,
                               const char *function, uint64_t bytes) {
  struct thread *own, *thread;
  struct sl_call *call;
  HASH_FIND(hh, c->threads, &number, sizeof number, own);
  for (call = own && own->batch ? sl_batch_calls(own->batch) : NULL; call; call = call->next)
    if (is_about(call, e, function, bytes))
      return call;
  for (thread = c->threads; thread; thread = thread->hh.next)
    for (call = thread->batch ? sl_batch_calls(thread->batch) : NULL; call; call = call->next)
      if (is_about(call, e, function, bytes))
        return call;
  return NULL;
}

/* The profiler tells the calls of each kernel right behind its launch. NULL where the launch is not known. */
static const struct sl_launch *launch_of(const struct sl_collectives *c, uint32_t number, const struct sl_call *call) {
  const struct thread *thread;
  const struct sl_call *own;
  HASH_FIND(hh, c->threads, &number, sizeof number, thread);
  for (own = thread && thread->batch ? sl_batch_calls(thread->batch) : NULL; own; own = own->next)
    if (own == call)
      return sl_batch_last_launch(thread->batch);
  return NULL;
}

static int profiled(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_nccl_call *e = event->payload;
  const char *function = sl_log_string(c->log, e->function), *datatype = sl_log_string(c->log, e->datatype);
  uint64_t bytes = e->count * datatype_bytes(datatype);
  struct sl_call *call = call_of(c, event->thread, e, function, bytes);
  struct communicator *communicator = e->communicator ? communicator_named(c, e->communicator) : NULL;
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
  struct communicator *at_work = thread ? communicator_at_work(thread) : NULL;
  if (at_work && !at_work->named)
    communicator_name(c, at_work, e->communicator);
  struct communicator *communicator = communicator_named(c, e->communicator);
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
  struct communicator *communicator = communicator_named(c, e->communicator);
  if (!communicator)
    return no_memory(error);
  if (e->kind == SL_CALLS_collectives) {
    communicator->calls = e->calls;
    return 0;
  }
  struct peer_count *peer = peer_of(communicator, e->peer, e->kind == SL_CALLS_receives);
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
  case SL_EVENT_driver_free: memory_end(c, ((const struct sl_event_driver_free *)payload)->address); return 0;
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
      r = sl_batch_close(c->joiner, thread->batch, error);
      thread->batch = NULL;
    }
  if (r == 0)
    r = sl_joiner_finish(c->joiner, error);
  const struct communicator *communicator;
  LL_FOREACH(c->communicators, communicator)
  if (communicator->named && r == 0)
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

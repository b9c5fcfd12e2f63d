/*
 * The profiler speaks of a call without saying which one it is: the first that waits and fits. Where nothing else tells
 * the calls, it is a call of its own.
 */
#include "profiled_calls.h"

#include "calls_under_way.h"
#include "plugin/format/events.h"

#include <string.h>

enum { CALLS_LOOKED_AT = 4096 }; /* for the one that is meant: mostly it is the first */

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

int sl_profiled_call(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_nccl_call *e = event->payload;
  const char *function = sl_log_string(c->log, e->function), *datatype = sl_log_string(c->log, e->datatype);
  uint64_t bytes = e->count * datatype_bytes(datatype);
  struct sl_call *call = call_of(c, event->thread, e, function, bytes);
  struct sl_communicator *communicator = e->communicator ? sl_communicator_of(c->communicators, e->communicator) : NULL;
  int r = 0;
  if (e->communicator && !communicator)
    return sl_no_memory(error);
  if (!call) {
    if (c->ranges_seen || sl_kernel_kind(function) < 0)
      return 0; /* a replayed graph's, or one whose range was lost */
    struct thread *thread = sl_calls_thread(c, event->thread);
    call = thread ? sl_call_new(c, event, function) : NULL;
    r = call ? sl_call_add(c, thread, call, error) : sl_no_memory(error);
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
    r = sl_call_number(communicator, row, error);
  }
  return r;
}

int sl_profiled_communicator(struct sl_collectives *c, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_nccl_communicator *e = event->payload;
  /* Inside of NCCL's own range the id is that range's. */
  struct thread *thread;
  HASH_FIND(hh, c->threads, &event->thread, sizeof event->thread, thread);
  struct sl_communicator *at_work = thread ? sl_calls_communicator(thread) : NULL;
  if (at_work && !at_work->named && sl_communicator_name(c->communicators, at_work, e->communicator) < 0)
    return sl_no_memory(error);
  struct sl_communicator *communicator = sl_communicator_of(c->communicators, e->communicator);
  if (!communicator)
    return sl_no_memory(error);
  communicator->ranks = e->ranks;
  communicator->rank = e->rank;
  const char *name = sl_log_string(c->log, e->name);
  communicator->name = *name ? name : NULL;
  return 0;
}

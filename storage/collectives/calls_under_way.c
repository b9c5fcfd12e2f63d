/* A call begins where its thread is, and waits in its thread's batch for a launch. */
#include "calls_under_way.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct thread *sl_calls_thread(struct sl_collectives *c, uint32_t number) {
  struct thread *thread;
  SL_HASH_FIND_OR_ADD(c->threads, thread, number, thread);
  return thread;
}

struct sl_communicator *sl_calls_communicator(const struct thread *thread) {
  for (uint32_t i = thread->depth < MAX_DEPTH ? thread->depth : MAX_DEPTH; i-- > 0;)
    if (thread->ranges[i].communicator)
      return sl_communicator_itself(thread->ranges[i].communicator);
  return NULL;
}

static bool is_point_to_point(const char *operation) {
  return strcmp(operation, "Send") == 0 || strcmp(operation, "Recv") == 0;
}

int sl_call_number(struct sl_communicator *communicator, struct sl_collective_row *row, struct sl_error *error) {
  if (!is_point_to_point(row->operation)) {
    row->seq = (int64_t)communicator->calls++;
    return 0;
  }
  if (row->peer < 0)
    return 0;
  struct sl_peer_count *peer = sl_communicator_peer(communicator, row->peer, row->operation[0] == 'R');
  if (!peer)
    return sl_no_memory(error);
  row->seq = (int64_t)peer->count++;
  return 0;
}

struct sl_call *sl_call_new(struct sl_collectives *c, const struct sl_event *event, const char *operation) {
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

void sl_calls_batch_is(struct sl_collectives *c, struct thread *thread, struct sl_batch *batch) {
  if (thread->batch && !batch)
    DL_DELETE(c->waiting, thread);
  else if (!thread->batch && batch)
    DL_APPEND(c->waiting, thread);
  thread->batch = batch;
}

int sl_calls_batch_end(struct sl_collectives *c, struct thread *thread, struct sl_error *error) {
  struct sl_batch *batch = thread->batch;
  sl_calls_batch_is(c, thread, NULL);
  return sl_batch_close(c->joiner, batch, error);
}

int sl_call_add(struct sl_collectives *c, struct thread *thread, struct sl_call *call, struct sl_error *error) {
  int r = 0;
  if (thread->batch && sl_batch_launched(thread->batch) == c->ranges_seen) {
    r = sl_calls_batch_end(c, thread, error);
    thread->last.call = NULL;
  }
  if (!thread->batch)
    sl_calls_batch_is(c, thread, sl_batch_new(c->joiner));
  if (!thread->batch) {
    free(call);
    return sl_no_memory(error);
  }
  sl_batch_add(thread->batch, call);
  return r;
}

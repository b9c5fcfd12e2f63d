/* The same readings as in storage/collectives, without rows: a reader would have counted them so. */
#include "call_counts.h"

#include "storage/hash_table.h"
#include "storage/log/nccl_payload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DOMAIN_LIMIT = 256, MAX_DEPTH = 64 };

struct key {
  uint64_t communicator;
  uint32_t peer, kind;
};

struct count {
  struct key key;
  uint64_t calls;
  UT_hash_handle hh;
};

struct range { /* an open one of NCCL's domain */
  bool is_operation, is_making;
  bool waits; /* an operation outside of any other, whose payload has not come */
  uint32_t kind;
};

struct thread {
  uint32_t thread, depth; /* ranges deeper than MAX_DEPTH are counted only */
  struct range ranges[MAX_DEPTH];
  struct range *last; /* that of the range event just before; NULL: none that matters */
  bool making;        /* and it tells of a communicator */
  UT_hash_handle hh;
};

struct sl_call_counts {
  const struct sl_log *log;
  struct sl_nccl_schemas *schemas;
  bool is_nccl[DOMAIN_LIMIT];
  bool ranges_seen; /* NVTX tells the calls */
  bool ranges_tell; /* and whose they are */
  struct thread *threads;
  struct count *counts;
};

struct sl_call_counts *sl_call_counts_new(const struct sl_log *log) {
  struct sl_call_counts *counts = calloc(1, sizeof *counts);
  if (!counts)
    return NULL;
  counts->log = log;
  counts->schemas = sl_nccl_schemas_new(log);
  return counts->schemas ? counts : sl_call_counts_free(counts);
}

struct sl_call_counts *sl_call_counts_free(struct sl_call_counts *counts) {
  if (!counts)
    return NULL;
  SL_HASH_FREE(counts->threads);
  SL_HASH_FREE(counts->counts);
  counts->schemas = sl_nccl_schemas_free(counts->schemas);
  free(counts);
  return NULL;
}

static struct thread *thread_of(struct sl_call_counts *counts, uint32_t number) {
  struct thread *thread;
  SL_HASH_FIND_OR_ADD(counts->threads, thread, number, thread);
  return thread;
}

static struct count *count_of(struct sl_call_counts *counts, uint64_t communicator, uint32_t peer, uint32_t kind) {
  struct count *count;
  const struct key key = {communicator, kind == SL_CALLS_collectives ? 0 : peer, kind};
  SL_HASH_FIND_OR_ADD(counts->counts, key, key, count);
  return count;
}

static uint32_t kind_of(const char *operation) {
  return strcmp(operation, "Send") == 0   ? SL_CALLS_sends
         : strcmp(operation, "Recv") == 0 ? SL_CALLS_receives
                                          : SL_CALLS_collectives;
}

/* Messages to or from nobody have no number. */
static int call_count(struct sl_call_counts *counts, uint64_t communicator, int64_t peer, uint32_t kind) {
  if (kind != SL_CALLS_collectives && peer < 0)
    return 0;
  struct count *count = count_of(counts, communicator, (uint32_t)peer, kind);
  if (!count)
    return -ENOMEM;
  count->calls++;
  return 0;
}

static int pushed(struct sl_call_counts *counts, const struct sl_event *event, bool *keep) {
  const struct sl_event_range_push *push = event->payload;
  struct thread *thread = thread_of(counts, event->thread);
  if (!thread)
    return -ENOMEM;
  const char *name = sl_log_string(counts->log, push->name);
  if (strncmp(name, "nccl", 4) == 0)
    name += 4;
  struct range range = {.is_operation = sl_kernel_kind(name) >= 0, .is_making = sl_nccl_makes_communicator(name)};
  range.kind = kind_of(name);
  range.waits = range.is_operation;
  for (uint32_t i = 0; i < thread->depth && i < MAX_DEPTH; i++)
    range.waits &= !thread->ranges[i].is_operation;
  counts->ranges_seen = true;
  thread->last = thread->depth < MAX_DEPTH ? &thread->ranges[thread->depth] : NULL;
  if (thread->last)
    *thread->last = range;
  thread->depth++;
  *keep = thread->making = range.is_making;
  return 0;
}

static void popped(struct sl_call_counts *counts, const struct sl_event *event, bool *keep) {
  struct thread *thread;
  HASH_FIND(hh, counts->threads, &event->thread, sizeof event->thread, thread);
  if (!thread || !thread->depth)
    return;
  thread->depth--;
  thread->last = thread->depth < MAX_DEPTH ? &thread->ranges[thread->depth] : NULL;
  *keep = thread->making = thread->last && thread->last->is_making;
}

/* A stretch of the thread's events is missing: its ranges end here, as the ledger takes it. */
static void stretch_lost(struct sl_call_counts *counts, uint32_t number) {
  struct thread *thread;
  HASH_FIND(hh, counts->threads, &number, sizeof number, thread);
  if (!thread)
    return;
  thread->depth = 0;
  thread->last = NULL;
  thread->making = false;
}

static int payload_come(struct sl_call_counts *counts, const struct sl_event *event, bool *keep) {
  const struct sl_event_range_payload *e = event->payload;
  struct sl_nccl_payload payload;
  struct thread *thread;
  HASH_FIND(hh, counts->threads, &event->thread, sizeof event->thread, thread);
  if (!thread)
    return 0;
  *keep = thread->making;
  if (!thread->last || !thread->last->waits)
    return 0;
  sl_nccl_payload_read(counts->schemas, e->domain, e->schema, e + 1, e->length, &payload);
  thread->last->waits = !payload.has_communicator && !payload.has_bytes;
  if (!payload.has_communicator)
    return 0;
  counts->ranges_tell = true;
  return call_count(counts, payload.communicator, payload.peer, thread->last->kind);
}

static int called(struct sl_call_counts *counts, const struct sl_event *event) {
  const struct sl_event_nccl_call *e = event->payload;
  const char *function = sl_log_string(counts->log, e->function);
  if (!e->communicator || counts->ranges_tell || sl_kernel_kind(function) < 0)
    return 0;
  return call_count(counts, e->communicator, e->point_to_point ? (int64_t)e->root : -1, kind_of(function));
}

static bool is_nccl(const struct sl_call_counts *counts, uint32_t domain) {
  return domain < DOMAIN_LIMIT && counts->is_nccl[domain];
}

int sl_call_counts_event(struct sl_call_counts *counts, const struct sl_event *event, bool *keep) {
  const void *payload = event->payload;
  *keep = false;
  switch (event->type) {
  case SL_EVENT_nvtx_domain: {
    const struct sl_event_nvtx_domain *domain = payload;
    if (domain->id < DOMAIN_LIMIT && strcmp(sl_log_string(counts->log, domain->name), "NCCL") == 0)
      counts->is_nccl[domain->id] = true;
    return 0;
  }
  case SL_EVENT_nvtx_schema_entry: return sl_nccl_schemas_add(counts->schemas, payload) < 0 ? -ENOMEM : 0;
  case SL_EVENT_range_push:
    return is_nccl(counts, ((const struct sl_event_range_push *)payload)->domain) ? pushed(counts, event, keep) : 0;
  case SL_EVENT_range_pop:
    if (is_nccl(counts, ((const struct sl_event_range_pop *)payload)->domain))
      popped(counts, event, keep);
    return 0;
  case SL_EVENT_range_payload:
    return is_nccl(counts, ((const struct sl_event_range_payload *)payload)->domain) ? payload_come(counts, event, keep)
                                                                                     : 0;
  case SL_EVENT_gap:
    if (sl_log_is_lost_stretch(counts->log, payload))
      stretch_lost(counts, event->thread);
    return 0;
  case SL_EVENT_nccl_call: return called(counts, event);
  case SL_EVENT_kept_calls: {
    const struct sl_event_kept_calls *e = payload;
    struct count *count = count_of(counts, e->communicator, e->peer, e->kind);
    if (!count)
      return -ENOMEM;
    count->calls = e->calls;
    return 0;
  }
  default: return 0;
  }
}

int sl_call_counts_each(const struct sl_call_counts *counts,
                        int (*each)(void *context, const struct sl_event_kept_calls *calls), void *context) {
  int r = 0;
  for (const struct count *count = counts->counts; count && r >= 0; count = count->hh.next) {
    const struct sl_event_kept_calls calls = {count->key.communicator, count->calls, count->key.peer, count->key.kind};
    r = each(context, &calls);
  }
  return r;
}

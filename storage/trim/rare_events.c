/* An event that ends another removes that one's copy: so what is kept is what is alive. */
#include "rare_events.h"

#include "plugin/format/events.h"
#include "storage/hash_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sl_rare_copy {
  struct sl_rare_copy *previous, *next;
  uint64_t key; /* of what it makes and another event ends; 0: none */
  uint64_t time_ns;
  uint32_t thread, tid, bytes;
  uint8_t type;
  UT_hash_handle hh; /* by key */
  uint64_t payload[];
};

static void copy_remove(struct sl_rare_events *rare, struct sl_rare_copy *copy) {
  *(copy->previous ? &copy->previous->next : &rare->first) = copy->next;
  *(copy->next ? &copy->next->previous : &rare->last) = copy->previous;
  if (copy->key)
    HASH_DEL(rare->made, copy);
  free(copy);
}

void sl_rare_clear(struct sl_rare_events *rare) {
  while (rare->first)
    copy_remove(rare, rare->first);
}

/* What this event makes or ends, and which of both; 0: neither. */
static uint64_t key_of(const struct sl_event *event, uint8_t device, bool *ends) {
  enum { DRIVER = 1, SEGMENT, CODE };
  uint64_t kind = 0, value = 0;
  *ends = false;
  if (event->type == SL_EVENT_driver_allocation || event->type == SL_EVENT_driver_free) {
    kind = DRIVER;
    value = *(const uint64_t *)event->payload; /* both begin with the address */
    *ends = event->type == SL_EVENT_driver_free;
  } else if (event->type == SL_EVENT_allocator) {
    const struct sl_event_allocator *e = event->payload;
    *ends = e->action == SL_SEGMENT_FREE;
    if (e->action == SL_SEGMENT_ALLOC || *ends) {
      kind = SEGMENT;
      value = e->address ^ (uint64_t)device << 56;
    }
  } else if (event->type == SL_EVENT_gpu_module) {
    const struct sl_event_gpu_module *code = event->payload;
    kind = CODE;
    value = (uint64_t)code->device << 32 | code->module;
    *ends = !code->loaded;
  }
  return kind ? XXH3_64bits_withSeed(&value, sizeof value, kind) | 1 : 0;
}

bool sl_is_rare(const struct sl_event *event) {
  switch (event->type) {
  case SL_EVENT_driver_allocation:
  case SL_EVENT_driver_free:
  case SL_EVENT_context:
  case SL_EVENT_gpu_module:
  case SL_EVENT_nccl_communicator:
  case SL_EVENT_gap: return true;
  case SL_EVENT_allocator: {
    const uint8_t action = ((const struct sl_event_allocator *)event->payload)->action;
    return action == SL_SEGMENT_ALLOC || action == SL_SEGMENT_FREE || action == SL_SEGMENT_MAP ||
           action == SL_SEGMENT_UNMAP;
  }
  default: return false;
  }
}

/* What was made and ended leaves no trace: so the copies do not outgrow what is alive. */
int sl_rare_add(struct sl_rare_events *rare, const struct sl_event *event, uint8_t device) {
  bool ends;
  const uint64_t key = key_of(event, device, &ends);
  struct sl_rare_copy *copy = NULL;
  if (key)
    HASH_FIND(hh, rare->made, &key, sizeof key, copy);
  if (copy && ends) {
    copy_remove(rare, copy);
    return 0;
  }
  const bool keyed = key && !ends && !copy;
  copy = calloc(1, sizeof *copy + event->bytes);
  if (!copy)
    return -ENOMEM;
  *copy = (struct sl_rare_copy){.previous = rare->last,
                                .key = keyed ? key : 0,
                                .time_ns = event->time_ns,
                                .thread = event->thread,
                                .tid = event->tid,
                                .bytes = event->bytes,
                                .type = event->type};
  memcpy(copy->payload, event->payload, event->bytes);
  *(rare->last ? &rare->last->next : &rare->first) = copy;
  rare->last = copy;
  if (keyed)
    HASH_ADD(hh, rare->made, key, sizeof copy->key, copy);
  return keyed && SL_HASH_FAILED(copy) ? -ENOMEM : 0; /* it is in the list all the same */
}

int sl_rare_put(const struct sl_rare_events *rare, struct sl_dropped_file *file) {
  uint32_t thread_now = SL_DROPPED_THREAD;
  int r = 0;
  for (const struct sl_rare_copy *copy = rare->first; copy && r == 0; copy = copy->next) {
    if (copy->thread != thread_now) {
      const struct sl_event_thread thread = {copy->thread, copy->tid};
      r = sl_dropped_put(file, copy->time_ns, SL_EVENT_thread, &thread, sizeof thread);
      thread_now = copy->thread;
    }
    if (r == 0)
      r = sl_dropped_put(file, copy->time_ns, copy->type, copy->payload, copy->bytes);
  }
  return r;
}

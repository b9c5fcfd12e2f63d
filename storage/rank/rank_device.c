/* The device as a whole: samples of what is in use, loaded code, and requests that were refused. */
#include "rank_builder.h"

#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_OUT_OF_MEMORY = 2 }; /* CUresult */

static int refusal_add(struct sl_rank_builder *b, const struct sl_event *event, uint32_t device, const char *source,
                       uint64_t requested_bytes, int64_t free_bytes) {
  struct sl_refusal refusal = {
      .at = b->clock.at,
      .at_ns = event->time_ns,
      .thread = event->thread,
      .device = device,
      .source = source,
      .row = {.requested_bytes = requested_bytes,
              .free_bytes = free_bytes,
              .place = sl_segment_place_of(sl_rank_phase_of(b, event))},
  };
  if (device < SL_DEVICES_MAX && b->memory.devices[device].map) {
    refusal.row.recorded = true;
    refusal.row.drivers_pool = b->memory.drivers_pool;
    refusal.row.totals = *sl_block_map_totals(b->memory.devices[device].map);
    refusal.row.free_blocks = sl_block_map_watch_free(b->memory.devices[device].map);
  }
  return sl_refusals_add(b->refusals, &refusal, b->error);
}

/* PyTorch's caching allocator calls the driver from here. */
static bool is_of_allocator(const struct sl_rank_builder *b, uint32_t owner) {
  return !b->memory.drivers_pool && strncmp(sl_log_string(b->log, owner), "libc10_cuda", 11) == 0;
}

/*
 * PyTorch's own allocator retries by itself and tells how that ended; of all others, cudaMallocAsync among them, only
 * the driver's word is known.
 */
int sl_rank_on_driver_failure(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_failure *failure = event->payload;
  int r = 0;
  if (failure->result != CUDA_OUT_OF_MEMORY)
    return 0;
  if (is_of_allocator(b, failure->owner))
    r = sl_retries_refused(b->retries, event, failure->device, failure->bytes,
                           sl_segment_place_of(sl_phases_current(b->phases, event->thread)), b->error);
  if (r < 0 || (b->memory.device >= 0 && is_of_allocator(b, failure->owner)))
    return r;
  return refusal_add(b, event, failure->device, sl_log_string(b->log, failure->owner), failure->bytes, -1);
}

void sl_rank_on_refused_site(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_refused_site *e = event->payload;
  sl_refusals_site(b->refusals, event->thread, e->device, sl_sites_known(b->sites.known, e->site));
}

int sl_rank_note_driver_allocation(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_allocation *e = event->payload;
  sl_refusals_saved(b->refusals, event->thread, sl_log_string(b->log, e->owner), e->bytes);
  return is_of_allocator(b, e->owner) ? sl_retries_given(b->retries, event, b->memory.device >= 0, b->error) : 0;
}

void sl_rank_note_driver_free(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_driver_free *e = event->payload;
  if (is_of_allocator(b, e->owner))
    sl_retries_freed(b->retries, event->thread, sl_driver_segments_bytes(b->segments, e->address));
}

/* cuBLAS's workspaces over time: what each sample of the device asks for, one after the other. */
struct workspaces {
  struct workspace_change {
    uint64_t at;
    int64_t bytes;
    uint32_t device;
  } * changes;
  size_t count, next;
  uint64_t bytes[SL_DEVICES_MAX]; /* after the changes before `next` */
};

static int compare_changes(const void *left, const void *right) {
  const struct workspace_change *a = left, *b = right;
  return (a->at > b->at) - (a->at < b->at);
}

static int workspaces_list(const struct sl_rank_builder *b, struct workspaces *out) {
  size_t capacity = 0;
  for (size_t i = 0; i < b->allocations.count; i++) {
    const struct sl_allocation *a = b->allocations.list[i];
    if (a->rule != SL_RULE_cublas_workspace || a->device >= SL_DEVICES_MAX ||
        sl_place_is_private(sl_rank_memory_place(&b->memory, a->place)))
      continue;
    if (out->count + 2 > capacity) {
      capacity = capacity ? 2 * capacity : 16;
      void *grown = reallocarray(out->changes, capacity, sizeof *out->changes);
      if (!grown)
        return -ENOMEM;
      out->changes = grown;
    }
    out->changes[out->count++] = (struct workspace_change){a->alloc_at, (int64_t)a->bytes, a->device};
    if (a->free_at)
      out->changes[out->count++] = (struct workspace_change){a->free_at, -(int64_t)a->bytes, a->device};
  }
  if (out->count)
    qsort(out->changes, out->count, sizeof *out->changes, compare_changes);
  return 0;
}

static uint64_t workspace_bytes(void *context, uint32_t device, uint64_t at) {
  struct workspaces *workspaces = context;
  for (; workspaces->next < workspaces->count && workspaces->changes[workspaces->next].at <= at; workspaces->next++) {
    const struct workspace_change *change = &workspaces->changes[workspaces->next];
    workspaces->bytes[change->device] += (uint64_t)change->bytes;
  }
  return device < SL_DEVICES_MAX ? workspaces->bytes[device] : 0;
}

int sl_rank_balance_settle(struct sl_rank_builder *b) {
  struct workspaces workspaces = {0};
  int r = workspaces_list(b, &workspaces);
  r = r < 0 ? sl_no_memory(b->error) : sl_device_balance_settle(b->balance, workspace_bytes, &workspaces, b->error);
  free(workspaces.changes);
  return r;
}

static int device_sample_take(struct sl_rank_builder *b, const struct sl_device_use *use) {
  const uint32_t device = use->device;
  struct sl_allocator_memory allocator = {0};
  if (device < SL_DEVICES_MAX && b->memory.devices[device].map)
    allocator = (struct sl_allocator_memory){*sl_block_map_totals(b->memory.devices[device].map),
                                             b->memory.devices[device].private_pools};
  if ((int)device == b->memory.device) {
    uint64_t *peak = &b->life.current.row.peak_device_bytes;
    b->memory.used_bytes = use->used_bytes;
    *peak = use->used_bytes > *peak ? use->used_bytes : *peak;
  }
  return sl_device_balance_sample(b->balance, use, &allocator, b->error);
}

int sl_rank_on_device_sample(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_device_sample *sample = event->payload;
  if (event->salvaged) { /* from before the blocks that are known again: only what the next step begins with */
    if ((int)sample->device == b->memory.device)
      b->life.current.row.peak_device_bytes = b->memory.used_bytes = sample->total_bytes - sample->free_bytes;
    return 0;
  }
  return device_sample_take(b, &(struct sl_device_use){.device = sample->device,
                                                       .by_nvml = sample->by == SL_SAMPLED_BY_NVML,
                                                       .at = b->clock.at,
                                                       .at_ns = event->time_ns,
                                                       .total_bytes = sample->total_bytes,
                                                       .used_bytes = sample->total_bytes - sample->free_bytes});
}

/* PyTorch asked the driver for the free bytes when it gave up: a sample like any other. */
int sl_rank_on_out_of_memory(struct sl_rank_builder *b, const struct sl_event *event, uint32_t device) {
  const struct sl_event_allocator *e = event->payload;
  uint64_t total_bytes = b->memory.devices[device].info.total_bytes;
  int r = refusal_add(b, event, device, SL_REFUSED_BY_ALLOCATOR, e->bytes, (int64_t)e->address);
  if (r == 0 && total_bytes >= e->address && total_bytes)
    r = device_sample_take(b, &(struct sl_device_use){.device = device,
                                                      .at = b->clock.at,
                                                      .at_ns = event->time_ns,
                                                      .total_bytes = total_bytes,
                                                      .used_bytes = total_bytes - e->address});
  return r;
}

int sl_rank_on_gpu_module(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_gpu_module *code = event->payload;
  struct sl_segment_place place = sl_segment_place_of(sl_phases_current(b->phases, event->thread));
  sl_device_balance_event(b->balance, event);
  const struct sl_gpu_code_cells cells = {
      .device = code->device,
      .at_ns = (int64_t)event->time_ns,
      .loaded = code->loaded != 0,
      .image_bytes = (int64_t)code->bytes,
      .phase_id = place.phase,
      .module_id = place.module,
      .step = sl_known(place.step, -1),
  };
  return sl_put_gpu_code(b->writer, &cells, b->error);
}

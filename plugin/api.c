/*
 * The public C API, shardledger.h: each function is one event, or a few lines around sl_log_append. What sources call
 * themselves is in source_state.c, since this file calls them.
 */
#include "shardledger.h"

#include "plugin/log/event_log.h"
#include "plugin/log/log_helper.h"
#include "plugin/process/config.h"
#include "plugin/sources/device_sampler.h"
#include "plugin/sources/source.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define DEVICES_MAX SL_DEVICES_MAX
#define PLACES_MAX 2048u /* device, stream and pool together; further ones have no place */
#define PLACE_SLOTS (2 * PLACES_MAX)

/* Written once, before a slot points to it. */
struct place {
  uint64_t stream, pool_owner, pool_id;
  uint32_t device, id;
};

static struct place places[PLACES_MAX];
static atomic_uint places_used;
static struct place *_Atomic place_slots[PLACE_SLOTS]; /* open addressing, never removed from */

/* A cache line each: devices' events come from different threads. */
static struct {
  _Alignas(64) atomic_uint_fast32_t next; /* sequence number of the next event */
  atomic_uint_fast32_t recorded;          /* one more than that of the last one in the log */
  const struct place *_Atomic place;      /* of the last event: mostly that of the next one too */
  atomic_bool has_segment;
} allocators[DEVICES_MAX];

uint32_t sl_api_version(void) {
  return SL_API_VERSION;
}

int sl_recording(void) {
  return sl_log_active();
}

const char *sl_directory(void) {
  return sl_log_directory();
}

const char *sl_option(const char *name) {
  return sl_option_named(name);
}

void sl_pause(void) {
  sl_log_pause(true);
}

void sl_resume(void) {
  sl_log_pause(false);
}

void sl_info(const char *key, const char *value) {
  const struct sl_event_info event = {sl_log_name(key), sl_log_name(value)};
  if (event.key)
    sl_log_define(SL_EVENT_info, &event, sizeof(event), NULL, 0);
}

void sl_module(uint32_t id, uint32_t parent, const char *fqn, const char *class_name, uint32_t flags, uint32_t depth,
               uint64_t parameter_bytes, uint64_t buffer_bytes) {
  const struct sl_event_module event = {.id = id,
                                        .parent = parent,
                                        .fqn = sl_log_name(fqn),
                                        .class_name = sl_log_name(class_name),
                                        .flags = flags,
                                        .depth = depth,
                                        .parameter_bytes = parameter_bytes,
                                        .buffer_bytes = buffer_bytes};
  sl_log_define(SL_EVENT_module, &event, sizeof(event), NULL, 0);
}

void sl_parameter(uint32_t id, uint32_t module, uint32_t unit, uint32_t place, const char *name, const char *dtype,
                  const char *shape, const char *local_shape, const char *placement, uint32_t flags) {
  const struct sl_event_parameter event = {.id = id,
                                           .module = module,
                                           .unit = unit,
                                           .place = place,
                                           .name = sl_log_name(name),
                                           .dtype = sl_log_name(dtype),
                                           .shape = sl_log_name(shape),
                                           .local_shape = sl_log_name(local_shape),
                                           .placement = sl_log_name(placement),
                                           .flags = flags};
  sl_log_define(SL_EVENT_parameter, &event, sizeof(event), NULL, 0);
}

void sl_fsdp_unit(uint32_t module, uint32_t shard_ranks, uint32_t replicas, uint32_t reshard_ranks,
                  const char *param_dtype, const char *reduce_dtype, uint32_t groups, uint32_t flags) {
  const struct sl_event_fsdp_unit event = {.module = module,
                                           .shard_ranks = shard_ranks,
                                           .replicas = replicas,
                                           .reshard_ranks = reshard_ranks,
                                           .param_dtype = sl_log_name(param_dtype),
                                           .reduce_dtype = sl_log_name(reduce_dtype),
                                           .groups = groups,
                                           .flags = flags};
  sl_log_define(SL_EVENT_fsdp_unit, &event, sizeof(event), NULL, 0);
}

void sl_optimizer(uint32_t id, uint32_t group, const char *class_name, const char *settings, const char *parameters,
                  uint32_t count) {
  const struct sl_event_optimizer event = {.id = id,
                                           .group = group,
                                           .class_name = sl_log_name(class_name),
                                           .settings = sl_log_name(settings),
                                           .parameters = sl_log_name(parameters),
                                           .count = count};
  sl_log_define(SL_EVENT_optimizer, &event, sizeof(event), NULL, 0);
}

void sl_tag(int device, uint64_t address, const char *category, uint32_t module, const char *name) {
  if (!sl_log_active())
    return;
  const struct sl_event_tag event = {.address = address,
                                     .category = sl_log_name(category),
                                     .module = module,
                                     .name = sl_log_name(name),
                                     .device = (uint32_t)device};
  sl_log_append(SL_EVENT_tag, &event, sizeof(event), NULL, 0);
}

/* ---- the allocator ---- */

static bool place_equal(const struct place *a, const struct place *b) {
  return a->stream == b->stream && a->pool_id == b->pool_id && a->pool_owner == b->pool_owner && a->device == b->device;
}

/* Makes a new place known. Of two threads that do so at once one definition goes unused, which is harmless. */
static struct place *place_define(const struct place *key) {
  unsigned at = atomic_load_explicit(&places_used, memory_order_relaxed);
  if (at >= PLACES_MAX || (at = atomic_fetch_add(&places_used, 1)) >= PLACES_MAX)
    return NULL;
  struct place *place = &places[at];
  *place = *key;
  place->id = at + 1;
  const struct sl_event_allocator_place event = {.id = place->id,
                                                 .device = place->device,
                                                 .stream = place->stream,
                                                 .pool_owner = place->pool_owner,
                                                 .pool_id = place->pool_id};
  sl_log_define(SL_EVENT_allocator_place, &event, sizeof(event), NULL, 0);
  return place;
}

/* The known place that equals key; NULL when there are too many. No lock, except at a place's first use. */
static const struct place *place_find(const struct place *key) {
  uint64_t hash = XXH3_64bits(key, offsetof(struct place, id));
  struct place *mine = NULL;
  for (unsigned probe = 0; probe < PLACE_SLOTS; probe++) {
    struct place *_Atomic *slot = &place_slots[(hash + probe) % PLACE_SLOTS];
    struct place *place = atomic_load_explicit(slot, memory_order_acquire);
    if (!place) {
      if (!mine && !(mine = place_define(key)))
        return NULL;
      if (atomic_compare_exchange_strong_explicit(slot, &place, mine, memory_order_acq_rel, memory_order_acquire))
        return mine;
    }
    if (place_equal(place, key))
      return place;
  }
  return NULL;
}

/* Id of a place of a device below DEVICES_MAX, 0 when there are too many. */
static uint16_t place_id(const struct place *key) {
  const struct place *place = atomic_load_explicit(&allocators[key->device].place, memory_order_acquire);
  if (!place || !place_equal(place, key)) {
    place = place_find(key);
    atomic_store_explicit(&allocators[key->device].place, place, memory_order_release);
  }
  return place ? (uint16_t)place->id : 0;
}

/* Holes in the sequence show a reader what is missing, but not behind the last event: that is told here. */
static void tell_missing_tail(void) {
  for (int device = 0; device < DEVICES_MAX; device++) {
    uint32_t next = (uint32_t)atomic_load(&allocators[device].next);
    uint32_t recorded = (uint32_t)atomic_load(&allocators[device].recorded);
    if (next != recorded)
      sl_log_gap("allocator", "paused, or no segment was ready, up to the end", next - recorded);
  }
}

static inline __attribute__((always_inline)) void allocator_event(int device, int action, uint64_t address,
                                                                  uint64_t bytes, uint64_t stream, uint64_t pool_owner,
                                                                  uint64_t pool_id, uint64_t at_ns) {
  static atomic_bool registered;
  if (device < 0 || device >= DEVICES_MAX) {
    sl_log_gap("allocator", "a device index above 63", 1);
    return;
  }
  /* Counted also while recording is off, so that the numbers show how many are missing. */
  const uint32_t sequence = (uint32_t)atomic_fetch_add_explicit(&allocators[device].next, 1, memory_order_relaxed);
  if (!sl_log_active())
    return;
  if (!atomic_load_explicit(&registered, memory_order_relaxed) && !atomic_exchange(&registered, true))
    sl_log_on_end(tell_missing_tail);
  if (at_ns) {
    const struct sl_event_allocator_time time = {.at_ns = at_ns, .sequence = sequence, .device = (uint32_t)device};
    sl_log_append(SL_EVENT_allocator_time, &time, sizeof(time), NULL, 0);
  }
  const struct place key = {stream, pool_owner, pool_id, (uint32_t)device, 0};
  const struct sl_event_allocator event = {
      .address = address, .bytes = bytes, .sequence = sequence, .place = place_id(&key), .action = (uint8_t)action};
  if (sl_log_append_allocator(&event))
    atomic_store_explicit(&allocators[device].recorded, sequence + 1, memory_order_relaxed);
  /* The earliest instant with a context for sure: PyTorch has just called the driver here itself, under the same lock.
   */
  if (action != SL_ALLOC && action != SL_FREE_REQUESTED && action != SL_FREE_COMPLETED)
    sl_source_device_changed();
  if ((action == SL_SEGMENT_ALLOC || action == SL_SEGMENT_MAP) &&
      !atomic_load_explicit(&allocators[device].has_segment, memory_order_relaxed) &&
      !atomic_exchange(&allocators[device].has_segment, true)) {
    sl_device_sampler_add((uint32_t)device);
    sl_source_device_sample();
  }
}

void sl_allocator_event(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream, uint64_t pool_owner,
                        uint64_t pool_id) {
  allocator_event(device, action, address, bytes, stream, pool_owner, pool_id, 0);
}

void sl_allocator_event_at(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream,
                           uint64_t pool_owner, uint64_t pool_id, uint64_t at_ns) {
  allocator_event(device, action, address, bytes, stream, pool_owner, pool_id, at_ns);
}

void sl_frame(uint32_t id, uint32_t caller, const char *file, const char *function, uint32_t line) {
  const struct sl_event_frame event = {
      .id = id, .caller = caller, .file = sl_log_name(file), .function = sl_log_name(function), .line = line};
  sl_log_define(SL_EVENT_frame, &event, sizeof(event), NULL, 0);
}

void sl_site(uint32_t id, uint32_t frame, const char *operator_name, int stack_of) {
  const struct sl_event_site event = {
      .id = id, .frame = frame, .operator_name = sl_log_name(operator_name), .stack_of = (uint32_t)stack_of};
  sl_log_define(SL_EVENT_site, &event, sizeof(event), NULL, 0);
}

void sl_allocator_site(int device, uint32_t site) {
  if (!sl_log_active() || device < 0 || device >= DEVICES_MAX)
    return;
  const struct sl_event_allocator_site event = {
      .sequence = sl_allocator_sequence(device), .device = (uint32_t)device, .site = site};
  sl_log_append(SL_EVENT_allocator_site, &event, sizeof(event), NULL, 0);
}

void sl_use(uint64_t address, uint32_t site, uint32_t lasted_ns) {
  const struct sl_event_use event = {.address = address, .site = site, .lasted_ns = lasted_ns};
  if (sl_log_active())
    sl_log_append(SL_EVENT_use, &event, sizeof(event), NULL, 0);
}

void sl_use_watch(int followed, int (*in_operator)(void)) {
  const bool sees_launches = sl_source_cupti_launches(followed ? in_operator : NULL);
  const struct sl_event_use_watch event = {.state = !followed       ? SL_USES_OFF
                                                    : sees_launches ? SL_USES_FOLLOWED
                                                                    : SL_USES_PARTLY};
  if (sl_log_active())
    sl_log_append(SL_EVENT_use_watch, &event, sizeof(event), NULL, 0);
}

void sl_allocator_note(int device, const char *note) {
  if (!sl_log_active() || device < 0 || device >= DEVICES_MAX)
    return;
  const struct sl_event_allocator_note event = {
      .sequence = sl_allocator_sequence(device), .device = (uint32_t)device, .note = sl_log_name(note)};
  if (event.note)
    sl_log_append(SL_EVENT_allocator_note, &event, sizeof(event), NULL, 0);
}

void sl_refused_site(int device, uint32_t site) {
  if (!sl_log_active() || device < 0 || device >= DEVICES_MAX)
    return;
  const struct sl_event_refused_site event = {.device = (uint32_t)device, .site = site};
  sl_log_append(SL_EVENT_refused_site, &event, sizeof(event), NULL, 0);
}

void sl_allocator_told(uint64_t until_ns) {
  const struct sl_event_allocator_told event = {.until_ns = until_ns};
  if (sl_log_active())
    sl_log_append(SL_EVENT_allocator_told, &event, sizeof(event), NULL, 0);
}

uint32_t sl_allocator_sequence(int device) {
  return device < 0 || device >= DEVICES_MAX ? 0 : (uint32_t)atomic_load(&allocators[device].next);
}

/* Definitions: a reader has them before the first allocator event, so it begins with a whole block map. */
void sl_allocator_restore(int device, uint32_t sequence, uint32_t segments, uint32_t blocks) {
  if (!sl_log_active() || device < 0 || device >= DEVICES_MAX)
    return;
  const struct sl_event_allocator_restore event = {
      .device = (uint32_t)device, .segments = segments, .blocks = blocks, .sequence = sequence};
  sl_log_define(SL_EVENT_allocator_restore, &event, sizeof(event), NULL, 0);
}

void sl_allocator_existing(int device, uint64_t address, uint64_t bytes, uint64_t requested_bytes, uint64_t stream,
                           uint64_t pool_owner, uint64_t pool_id, int state, int starts_segment) {
  if (!sl_log_active() || device < 0 || device >= DEVICES_MAX)
    return;
  const struct place key = {stream, pool_owner, pool_id, (uint32_t)device, 0};
  const struct sl_event_allocator_existing event = {.address = address,
                                                    .bytes = bytes,
                                                    .requested_bytes = requested_bytes,
                                                    .device = (uint32_t)device,
                                                    .place = place_id(&key),
                                                    .state = (uint8_t)state,
                                                    .starts_segment = starts_segment != 0};
  sl_log_define(SL_EVENT_allocator_existing, &event, sizeof(event), NULL, 0);
}

void sl_allocator_stats(int device, uint32_t sequence, uint64_t requested_bytes, uint64_t allocated_bytes,
                        uint64_t active_bytes, uint64_t reserved_bytes) {
  const struct sl_event_allocator_stats event = {.requested_bytes = requested_bytes,
                                                 .allocated_bytes = allocated_bytes,
                                                 .active_bytes = active_bytes,
                                                 .reserved_bytes = reserved_bytes,
                                                 .sequence = sequence,
                                                 .device = (uint32_t)device};
  sl_log_append(SL_EVENT_allocator_stats, &event, sizeof(event), NULL, 0);
}

/* ---- what CUDA and CUPTI are asked for ---- */

void sl_device_sample(void) {
  sl_source_device_sample();
}

void sl_device_sample_if_due(void) {
  if (sl_source_device_is_due())
    sl_source_device_sample();
}

int sl_cupti_release(void) {
  return sl_source_cupti_release();
}

int sl_cupti_reacquire(void) {
  return sl_source_cupti_reacquire();
}

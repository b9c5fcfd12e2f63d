#include "rank_ledger.h"

#include "rank_builder.h"
#include "storage/collectives/exposed_time.h"
#include "storage/log/log_past.h"
#include "storage/tables/ledger_tables.h"
#include "storage/tracker/tracker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rules' own categories come first, since their numbers say so. */
static int categories_of_rules(struct sl_rank_builder *b, const struct sl_user_rules *rules) {
  size_t count;
  const char *const *names = sl_user_rules_own_categories(rules, &count);
  for (size_t i = 0; i < count; i++) {
    b->user_categories[b->category_count] = strdup(names[i]);
    if (!b->user_categories[b->category_count])
      return -ENOMEM;
    b->category_count++;
  }
  return 0;
}

/* Logs of before `allocator_backend=uncached` say it at the beginning of a reason only. */
#define UNCACHED "PYTORCH_NO_CUDA_MEMORY_CACHING"

/* What the process said about its allocator; it says so when it attaches, before the allocator's first event. */
static void allocator_facts_take(struct sl_rank_builder *b) {
  const char *backend = sl_log_info(b->log, "allocator_backend");
  sl_allocator_config_parse(sl_log_info(b->log, "allocator_config"), &b->config);
  b->uncached = b->uncached || (backend && strcmp(backend, "uncached") == 0);
  b->drivers_pool = b->uncached || (backend && strcmp(backend, "cudaMallocAsync") == 0);
}

static int gap_write(struct sl_rank_builder *b, uint64_t at_ns, const char *source, uint64_t lost, const char *reason) {
  const struct sl_gap_cells cells = {
      .at_ns = (int64_t)at_ns, .source = source, .lost = (int64_t)lost, .reason = reason};
  return sl_put_gap(b->writer, &cells, b->error);
}

static int on_event(struct sl_rank_builder *b, const struct sl_event *event) {
  const void *payload = event->payload;
  int r = sl_collectives_event(b->collectives, event, b->error);
  sl_rank_pattern_event(b, event);
  if (r < 0)
    return r;
  switch (event->type) {
  case SL_EVENT_allocator: return sl_rank_on_allocator(b, event);
  case SL_EVENT_allocator_place: {
    const struct sl_event_allocator_place *e = payload;
    if (e->id < MAX_PLACES && !b->places[e->id].pool) /* it is defined before it is used */
      b->places[e->id] = (struct place){e->device, e->stream, e->pool_owner, e->pool_id, NULL};
    return 0;
  }
  case SL_EVENT_allocator_restore: return sl_rank_on_allocator_restore(b, payload);
  case SL_EVENT_allocator_existing: return sl_rank_on_allocator_existing(b, event);
  case SL_EVENT_allocator_stats: sl_rank_on_allocator_stats(b, event); return 0;
  case SL_EVENT_dropped_allocator:
  case SL_EVENT_kept_block:
  case SL_EVENT_kept_range:
  case SL_EVENT_dropped: return sl_rank_on_gap_event(b, event);
  case SL_EVENT_tag: return sl_rank_on_tag(b, event);
  case SL_EVENT_device_sample: return sl_rank_on_device_sample(b, event);
  case SL_EVENT_driver_allocation:
    r = sl_rank_note_driver_allocation(b, event);
    if (r == 0)
      r = sl_driver_segments_add(b->segments, event, sl_phases_current(b->phases, event->thread), b->error);
    return r < 0 ? r : sl_rank_on_driver_allocation(b, event);
  case SL_EVENT_driver_failure: return sl_rank_on_driver_failure(b, event);
  case SL_EVENT_gpu_module: return sl_rank_on_gpu_module(b, event);
  case SL_EVENT_process_memory: sl_device_balance_event(b->balance, event); return 0;
  case SL_EVENT_context: {
    const struct sl_event_context *e = payload;
    const struct sl_context_cells cells = {
        .device = e->device, .context = e->context, .at_ns = (int64_t)event->time_ns, .created = e->created != 0};
    return sl_put_context(b->writer, &cells, b->error);
  }
  case SL_EVENT_driver_free:
    sl_rank_note_driver_free(b, event);
    r = sl_driver_segments_remove(b->segments, event, b->error);
    return r < 0 ? r : sl_rank_on_driver_free(b, event);
  case SL_EVENT_kernel: {
    const struct sl_event_kernel *kernel = payload;
    if (sl_rank_hold_device(b, kernel->end_ns))
      r = sl_write_kernel(b->writer, kernel, sl_log_string(b->log, kernel->name), b->error);
    break;
  }
  case SL_EVENT_memory_copy:
    if (sl_rank_hold_device(b, ((const struct sl_event_memory_copy *)payload)->end_ns))
      r = sl_write_memcpy(b->writer, payload, b->error);
    break;
  case SL_EVENT_memory_set:
    if (sl_rank_hold_device(b, ((const struct sl_event_memory_set *)payload)->end_ns))
      r = sl_write_memset(b->writer, payload, b->error);
    break;
  case SL_EVENT_info: allocator_facts_take(b); return 0;
  case SL_EVENT_gap: {
    const struct sl_event_gap *gap = payload;
    if (sl_phases_event(b->phases, event, b->at) < 0)
      return sl_no_memory(b->error);
    return b->r < 0 ? b->r
                    : gap_write(b, event->time_ns, sl_log_string(b->log, gap->source), gap->lost,
                                sl_log_string(b->log, gap->reason));
  }
  case SL_EVENT_source_state: {
    const struct sl_event_source_state *state = payload;
    const char *source = sl_log_string(b->log, state->source), *reason = sl_log_string(b->log, state->reason);
    if (strcmp(source, "torch_allocator") == 0 && strncmp(reason, UNCACHED, strlen(UNCACHED)) == 0)
      b->drivers_pool = b->uncached = true;
    if (strcmp(source, "companion") == 0)
      b->companion = strcmp(sl_log_string(b->log, state->state), "on") == 0;
    const struct sl_source_cells cells = {.source = source,
                                          .state = sl_log_string(b->log, state->state),
                                          .reason = reason,
                                          .at_ns = (int64_t)event->time_ns};
    return sl_put_source(b->writer, &cells, b->error);
  }
  default:
    if (sl_phases_event(b->phases, event, b->at) < 0)
      return sl_no_memory(b->error);
    return b->r;
  }
  sl_rank_release(b);
  return r;
}

/* SL_NONE: the process did not say. */
static int64_t info_number(const struct sl_log *log, const char *key) {
  const char *text = sl_log_info(log, key);
  return text && *text ? sl_known(strtoll(text, NULL, 10), -1) : SL_NONE;
}

/* What is not understood is not lost, and of no source that this version knows. */
static int newer_write(struct sl_rank_builder *b, const struct sl_log_counts *counts) {
  char reason[128];
  snprintf(reason, sizeof reason,
           counts->newer_records == 1 ? "%llu record of %u kind is of a newer version and was skipped"
           : counts->newer_kinds == 1 ? "%llu records of %u kind are of a newer version and were skipped"
                                      : "%llu records of %u kinds are of a newer version and were skipped",
           (unsigned long long)counts->newer_records, counts->newer_kinds);
  const struct sl_source_cells cells = {
      .source = "log", .state = "newer", .reason = reason, .at_ns = (int64_t)b->end_ns};
  return sl_put_source(b->writer, &cells, b->error);
}

static int rank_write(struct sl_rank_builder *b, const struct sl_event_device *device) {
  struct sl_log_counts counts;
  sl_log_counts(b->log, &counts);
  int r = 0;
  if (b->replay_unknown)
    r = gap_write(b, b->now_ns, "replay", b->replay_unknown,
                  "allocator events that speak of memory from before recording, or contradict the replay");
  if (r == 0 && sl_phases_unbalanced(b->phases))
    r = gap_write(b, b->now_ns, "ranges", sl_phases_unbalanced(b->phases),
                  "range ends without their start (recording began inside of them, or the program is unbalanced)");

  if (r == 0 && counts.newer_records)
    r = newer_write(b, &counts);
  if (r == 0 && sl_phases_modules_repeated(b->phases))
    r = gap_write(b, b->now_ns, "modules", sl_phases_modules_repeated(b->phases),
                  "modules whose id another one got later: what is said of the id is said of the latter");

  const struct sl_rank_cells cells = {
      .world_size = info_number(b->log, "world_size"),
      .local_rank = info_number(b->log, "local_rank"),
      .pid = info_number(b->log, "pid"),
      .device = b->device >= 0 ? b->device : info_number(b->log, "device"),
      .host = sl_log_info(b->log, "host"),
      .device_name = device->total_bytes ? sl_log_string(b->log, device->name) : NULL,
      .device_uuid = device->total_bytes ? sl_log_string(b->log, device->uuid) : NULL,
      .device_bytes = sl_known((int64_t)device->total_bytes, 0),
      .torch_version = sl_log_info(b->log, "torch_version"),
      .nccl_version = sl_log_info(b->log, "nccl_version"),
      .cuda_version = sl_log_info(b->log, "cuda_version"),
      .allocator_backend = b->uncached ? "uncached" : sl_log_info(b->log, "allocator_backend"),
      .allocator_config = sl_log_info(b->log, "allocator_config"),
      .fidelity = sl_log_info(b->log, "fidelity"),
      .start_ns = (int64_t)b->start_ns,
      .end_ns = (int64_t)b->end_ns,
      .events = (int64_t)counts.events,
      .events_lost = (int64_t)(counts.lost + b->replay_unknown),
      .restored_allocations = (int64_t)b->restored_allocations,
      .clean_exit = b->clean_exit,
      .rehearsal = sl_log_info(b->log, "rehearsal"),
      .rehearsal_bytes = info_number(b->log, "rehearsal_bytes"),
  };
  uint32_t module_count;
  const struct sl_module_info *modules = sl_phases_modules(b->phases, &module_count);
  for (uint32_t i = 0; i < module_count && r == 0; i++)
    r = sl_write_module(b->writer, &modules[i], b->error);
  if (r == 0)
    r = sl_rank_meshes_write(b);
  return r < 0 ? r : sl_put_rank(b->writer, &cells, b->error);
}

struct sl_rank_builder *sl_rank_builder_free(struct sl_rank_builder *b) {
  if (!b)
    return NULL;
  for (int i = 0; i < MAX_DEVICES; i++)
    b->maps[i] = sl_block_map_free(b->maps[i]);
  for (size_t i = 0; i < b->allocations_made; i++)
    free(b->allocations[i]);
  for (int i = SL_CATEGORY_built_in; i < b->category_count; i++)
    free(b->user_categories[i]);
  struct peak_entry *peak, *next_peak;
  HASH_ITER(hh, b->peaks, peak, next_peak) {
    HASH_DEL(b->peaks, peak);
    free(peak);
  }
  free(b->allocations);
  sl_rank_gap_free(&b->gap);
  for (uint32_t i = 0; i < b->named_places; i++)
    free(b->places[i].pool);
  struct sl_rank_period *const periods[] = {&b->current, &b->outside, &b->last};
  for (size_t i = 0; i < sizeof periods / sizeof periods[0]; i++) {
    sl_rows_free(&periods[i]->rows);
    sl_rows_free(&periods[i]->device_rows);
    periods[i]->pattern = sl_rank_pattern_free(periods[i]->pattern);
    free(periods[i]->owners);
  }
  free(b->items);
  free(b->reshards);
  free(b->optimizer_starts.at);
  free(b->backward_starts.at);
  free(b->places);
  b->phases = sl_phases_free(b->phases);
  b->states = sl_module_states_free(b->states);
  b->sweep = sl_sweep_free(b->sweep);
  b->tracker = sl_tracker_free(b->tracker);
  b->segments = sl_driver_segments_free(b->segments);
  b->collectives = sl_collectives_free(b->collectives);
  b->balance = sl_device_balance_free(b->balance);
  b->refusals = sl_refusals_free(b->refusals);
  b->repeats = sl_rank_repeats_free(b->repeats);
  b->retries = sl_retries_free(b->retries);
  sl_ledger_writer_hold(b->writer, NULL);
  sl_ledger_writer_divert(b->writer, NULL, NULL);
  free(b);
  return NULL;
}

struct sl_rank_builder *sl_rank_builder_new(struct sl_log *log, struct sl_ledger_writer *writer,
                                            const struct sl_user_rules *rules, struct sl_error *error) {
  struct sl_rank_builder *b = calloc(1, sizeof *b);
  if (!b)
    goto finish;
  *b = (struct sl_rank_builder){
      .log = log,
      .writer = writer,
      .error = error,
      .device = -1,
      .restoring = true,
      .category_count = SL_CATEGORY_built_in,
  };
  allocator_facts_take(b);
  struct sl_phase_listener phase_listener = {b, sl_rank_phase_opened, sl_rank_phase_closed};
  struct sl_sweep_listener sweep_listener = {b, sl_rank_sweep_snapshot, sl_rank_sweep_peak, sl_rank_sweep_parent};
  struct sl_states_sink states_sink = {b, sl_rank_state_item_add, sl_rank_state_item_withdraw, sl_rank_state_item_fail};
  struct sl_collective_host host = {b, sl_rank_allocation_containing, sl_rank_allocation_sized};
  b->places = calloc(MAX_PLACES, sizeof *b->places);
  b->phases = sl_phases_new(log, &phase_listener);
  b->sweep = sl_sweep_new(&sweep_listener);
  b->tracker = b->phases ? sl_tracker_new(b->phases) : NULL;
  b->states = b->phases ? sl_module_states_new(b->phases, &states_sink) : NULL;
  b->segments = sl_driver_segments_new(log, writer);
  b->balance = sl_device_balance_new(writer, b->segments);
  b->refusals = sl_refusals_new();
  b->retries = sl_retries_new(writer);
  b->collectives = b->phases ? sl_collectives_new(log, writer, b->phases, &host) : NULL;
  b->repeats = sl_rank_repeats_new();
  b->current.pattern = sl_rank_pattern_new();
  b->outside.pattern = sl_rank_pattern_new();
  sl_ledger_writer_divert(writer, sl_rank_on_collective, b);
  if (b->places && b->phases && b->states && b->sweep && b->tracker && b->segments && b->collectives && b->balance &&
      b->refusals && b->retries && b->repeats && b->current.pattern && b->outside.pattern &&
      categories_of_rules(b, rules) == 0 && sl_phases_use_rules(b->phases, rules) == 0) {
    sl_rank_period_begin(b, SL_PERIOD_setup, -1, 0);
    if (b->r == 0)
      return b;
  }
finish:
  sl_no_memory(error);
  return sl_rank_builder_free(b);
}

void sl_rank_builder_keep_all(struct sl_rank_builder *b) {
  b->current.pattern = sl_rank_pattern_free(b->current.pattern);
  b->outside.pattern = sl_rank_pattern_free(b->outside.pattern);
  sl_rank_repeats_keep_all(b->repeats);
}

/* What failed where it could not be returned. */
static int has_failed(struct sl_rank_builder *b) {
  if (b->r == 0 && sl_phases_failed(b->phases))
    b->r = sl_no_memory(b->error);
  return b->r;
}

int sl_rank_builder_event(struct sl_rank_builder *b, const struct sl_event *event) {
  int r = 0;
  b->at++;
  /* Definitions are read first, whenever they were made: they say nothing about the time. */
  if (event->thread != 0 && event->time_ns > b->now_ns)
    b->now_ns = event->time_ns;
  if (!b->start_ns || event->time_ns < b->start_ns)
    b->start_ns = event->time_ns;
  if (event->time_ns > b->end_ns)
    b->end_ns = event->time_ns;
  if (event->type == SL_EVENT_process_end)
    b->clean_exit = true;
  if (event->type == SL_EVENT_device) {
    const struct sl_event_device *device = event->payload;
    if (device->id < MAX_DEVICES)
      b->devices[device->id] = *device;
  }
  if (b->restoring && event->thread != 0)
    r = sl_rank_restore_finish(b);
  if (r == 0)
    r = on_event(b, event);
  if (r == 0)
    r = sl_rank_period_piece(b);
  return r < 0 ? r : has_failed(b);
}

int sl_rank_builder_finish(struct sl_rank_builder *b) {
  int r = b->restoring ? sl_rank_restore_finish(b) : 0;
  if (r < 0)
    return r;
  r = sl_rank_life_end(b);
  if (r == 0)
    r = sl_driver_segments_finish(b->segments, b->error);
  if (r == 0)
    r = sl_collectives_finish(b->collectives, b->error);
  if (r == 0)
    r = sl_rank_repeats_finish(b);
  if (r == 0)
    r = sl_exposed_time_write(b->writer, b->error);
  if (r == 0)
    r = rank_write(b, &b->devices[b->device >= 0 ? b->device : 0]);
  return r < 0 ? r : has_failed(b);
}

int sl_rank_ledger_build(struct sl_log *log, struct sl_ledger_writer *writer, const struct sl_ledger_options *options,
                         uint64_t total, struct sl_error *error) {
  struct sl_rank_builder *b = sl_rank_builder_new(log, writer, options ? options->rules : NULL, error);
  struct sl_log_past *past = sl_log_past_new(log, false);
  struct sl_event event;
  int r = !b ? -ENOMEM : !past ? sl_no_memory(error) : 0;
  if (b && options && options->keep_all)
    sl_rank_builder_keep_all(b);
  while (r == 0 && (r = sl_log_past_next(past, &event, error)) > 0) {
    r = sl_rank_builder_event(b, &event);
    if (options && options->progress && b->at % PROGRESS_EVENTS == 0)
      options->progress(options->progress_context, sl_log_bytes_read(log), total);
  }
  if (r == 0)
    r = sl_rank_builder_finish(b);
  sl_rank_builder_free(b);
  sl_log_past_free(past);
  return r;
}

/* A rank's ledger, event by event: what each is for, and the facts about the rank. */
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

enum { PROGRESS_EVENTS = 1 << 16 };

/* Logs of before `allocator_backend=uncached` say it at the beginning of a reason only. */
#define UNCACHED "PYTORCH_NO_CUDA_MEMORY_CACHING"

/* What the process said of itself so far. */
static void facts_take(struct sl_rank_builder *b) {
  sl_rank_memory_facts(&b->memory, b->log);
  b->steps.workspaces_recorded = sl_log_info(b->log, "cublas_workspaces") != NULL;
}

static int gap_write(struct sl_rank_builder *b, uint64_t at_ns, const char *source, uint64_t lost, const char *reason) {
  const struct sl_gap_cells cells = {
      .at_ns = (int64_t)at_ns, .source = source, .lost = (int64_t)lost, .reason = reason};
  return sl_put_gap(b->writer, &cells, b->error);
}

static bool is_snapshot(const struct sl_rank_builder *b) {
  const char *fidelity = sl_log_info(b->log, "fidelity");
  return fidelity && strcmp(fidelity, "snapshot") == 0;
}

/* A snapshot's sums are what its history has to come to: what does not, on any device, is said first. */
static int on_allocator_stats(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_allocator_stats *stats = event->payload;
  sl_rank_on_allocator_stats(b, event);
  if (!is_snapshot(b) || stats->device >= SL_DEVICES_MAX)
    return 0;
  const struct sl_block_map *map = b->memory.devices[stats->device].map;
  if (sl_block_totals_are(map ? sl_block_map_totals(map) : &(struct sl_block_totals){0}, stats))
    return 0;
  return gap_write(b, event->time_ns, "snapshot", 0,
                   "what the history comes to is not what the snapshot holds: figures before its end may be wrong");
}

/* Ranges and modules; sl_rank_phase_opened and _closed hear of phases. */
static int on_phase_event(struct sl_rank_builder *b, const struct sl_event *event) {
  int r = sl_phases_event(b->phases, event, b->clock.at);
  return r == -ENOMEM ? sl_no_memory(b->error) : r;
}

static int on_device_time(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_kernel *kernel = event->payload;
  const struct sl_event_memory_copy *copy = event->payload;
  const struct sl_event_memory_set *set = event->payload;
  const uint64_t end_ns = event->type == SL_EVENT_kernel        ? kernel->end_ns
                          : event->type == SL_EVENT_memory_copy ? copy->end_ns
                                                                : set->end_ns;
  struct sl_rows *to;
  if (!sl_rank_rows_of_device(b->repeats, &b->life, end_ns, &to))
    return 0;
  switch (event->type) {
  case SL_EVENT_kernel: return sl_write_kernel(b->writer, to, kernel, sl_log_string(b->log, kernel->name), b->error);
  case SL_EVENT_memory_copy: return sl_write_memcpy(b->writer, to, copy, b->error);
  default: return sl_write_memset(b->writer, to, set, b->error);
  }
}

/* Of a period that is left out, a mark is left out too: the period that stands for it has one of the same name. */
static int on_mark(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_range_mark *mark = event->payload;
  const struct sl_phase *phase = sl_rank_phase_of(b, event);
  const struct sl_mark_cells cells = {
      .tid = event->tid,
      .at_ns = (int64_t)event->time_ns,
      .name = sl_log_string(b->log, mark->name),
      .domain = sl_phases_domain(b->phases, mark->domain),
      .value = sl_known((int64_t)mark->value, 0),
      .phase_id = phase ? phase->id : 0,
      .module_id = sl_phase_module(phase),
      .period = (int64_t)b->life.current.row.period,
      .step = sl_known(sl_phases_step(b->phases), -1),
  };
  return sl_put_mark_to(b->writer, sl_rank_rows_of(b->repeats, &b->life.current), &cells, b->error);
}

static int on_source_state(struct sl_rank_builder *b, const struct sl_event *event) {
  const struct sl_event_source_state *state = event->payload;
  const char *source = sl_log_string(b->log, state->source), *reason = sl_log_string(b->log, state->reason);
  if (strcmp(source, "torch_allocator") == 0 && strncmp(reason, UNCACHED, strlen(UNCACHED)) == 0)
    b->memory.drivers_pool = b->memory.uncached = true;
  if (strcmp(source, "companion") == 0)
    b->steps.companion = strcmp(sl_log_string(b->log, state->state), "on") == 0;
  const struct sl_source_cells cells = {.source = source,
                                        .state = sl_log_string(b->log, state->state),
                                        .reason = reason,
                                        .at_ns = (int64_t)event->time_ns};
  return sl_put_source(b->writer, &cells, b->error);
}

static int on_event(struct sl_rank_builder *b, const struct sl_event *event) {
  const void *payload = event->payload;
  if (event->type == SL_EVENT_allocator) /* most events are, and nobody else hears of them */
    return sl_rank_on_allocator(b, event);
  int r = sl_collectives_event(b->collectives, event, b->error);
  sl_rank_pattern_event(b->life.current.pattern, event, b->log, b->phases);
  if (r < 0)
    return r;
  switch (event->type) {
  case SL_EVENT_allocator_place: return sl_or_no_memory(sl_rank_memory_place_add(&b->memory, payload), b->error);
  case SL_EVENT_allocator_restore: return sl_rank_on_allocator_restore(b, payload);
  case SL_EVENT_allocator_existing: return sl_rank_on_allocator_existing(b, event);
  case SL_EVENT_existing_site: sl_rank_on_existing_site(b, payload); return 0;
  case SL_EVENT_allocator_stats: return on_allocator_stats(b, event);
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
  case SL_EVENT_range_mark: return on_mark(b, event);
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
  case SL_EVENT_kernel:
  case SL_EVENT_memory_copy:
  case SL_EVENT_memory_set: return on_device_time(b, event);
  case SL_EVENT_info: facts_take(b); return 0;
  case SL_EVENT_gap: {
    const struct sl_event_gap *gap = payload;
    r = on_phase_event(b, event);
    return r < 0 ? r
                 : gap_write(b, event->time_ns, sl_log_string(b->log, gap->source), gap->lost,
                             sl_log_string(b->log, gap->reason));
  }
  case SL_EVENT_source_state: return on_source_state(b, event);
  case SL_EVENT_frame:
  case SL_EVENT_site:
  case SL_EVENT_allocator_site:
  case SL_EVENT_allocator_note: return b->figures_only ? 0 : sl_rank_sites_event(&b->sites, event, b->error);
  case SL_EVENT_parameter:
  case SL_EVENT_fsdp_unit:
  case SL_EVENT_optimizer: return sl_rank_on_shards(b, event);
  case SL_EVENT_use: return b->figures_only ? 0 : sl_rank_on_use(b, event);
  case SL_EVENT_use_watch: return sl_rank_on_use_watch(b, event);
  case SL_EVENT_refused_site: sl_rank_on_refused_site(b, event); return 0;
  default: return on_phase_event(b, event);
  }
}

/* SL_NONE: the process did not say. */
static int64_t info_number(const struct sl_log *log, const char *key) {
  return sl_known(sl_log_info_number(log, key), -1);
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
      .source = "log", .state = "newer", .reason = reason, .at_ns = (int64_t)b->clock.end_ns};
  return sl_put_source(b->writer, &cells, b->error);
}

static int rank_write(struct sl_rank_builder *b, const struct sl_event_device *device) {
  struct sl_log_counts counts;
  sl_log_counts(b->log, &counts);
  int r = 0;
  if (b->memory.unknown)
    r = gap_write(b, b->clock.now_ns, "replay", b->memory.unknown,
                  "allocator events that speak of memory from before recording, or contradict the replay");
  if (r == 0 && sl_phases_unbalanced(b->phases))
    r = gap_write(b, b->clock.now_ns, "ranges", sl_phases_unbalanced(b->phases),
                  "range ends without their start (recording began inside of them, or the program is unbalanced)");

  if (r == 0 && counts.newer_records)
    r = newer_write(b, &counts);
  if (r == 0 && sl_phases_modules_repeated(b->phases))
    r = gap_write(b, b->clock.now_ns, "modules", sl_phases_modules_repeated(b->phases),
                  "modules whose id another one got later: what is said of the id is said of the latter");

  const struct sl_rank_cells cells = {
      .world_size = info_number(b->log, "world_size"),
      .local_rank = info_number(b->log, "local_rank"),
      .pid = info_number(b->log, "pid"),
      .device = b->memory.device >= 0 ? b->memory.device : info_number(b->log, "device"),
      .host = sl_log_info(b->log, "host"),
      .device_name = device->total_bytes ? sl_log_string(b->log, device->name) : NULL,
      .device_uuid = device->total_bytes ? sl_log_string(b->log, device->uuid) : NULL,
      .device_bytes = sl_known((int64_t)device->total_bytes, 0),
      .torch_version = sl_log_info(b->log, "torch_version"),
      .nccl_version = sl_log_info(b->log, "nccl_version"),
      .cuda_version = sl_log_info(b->log, "cuda_version"),
      .allocator_backend = b->memory.uncached ? "uncached" : sl_log_info(b->log, "allocator_backend"),
      .allocator_config = sl_log_info(b->log, "allocator_config"),
      .fidelity = sl_log_info(b->log, "fidelity"),
      .start_ns = (int64_t)b->clock.start_ns,
      .end_ns = (int64_t)b->clock.end_ns,
      .events = (int64_t)counts.events,
      .events_lost = (int64_t)(counts.lost + b->memory.unknown),
      .restored_allocations = (int64_t)b->restore.allocations,
      .clean_exit = is_snapshot(b) ? SL_NONE : b->clean_exit,
      .multiprocessors = info_number(b->log, "multiprocessors"),
      .multiprocessor_threads = info_number(b->log, "multiprocessor_threads"),
      .memory_limit_bytes = sl_known(info_number(b->log, "memory_limit"), 0),
      .memory_limit_changes = info_number(b->log, "memory_limit_changes"),
      .rehearsal = sl_log_info(b->log, "rehearsal"),
      .rehearsal_bytes = info_number(b->log, "rehearsal_bytes"),
      .pci_bus_id = sl_log_info(b->log, "pci_bus_id"),
  };
  uint32_t module_count;
  const struct sl_module_info *modules = sl_phases_modules(b->phases, &module_count);
  for (uint32_t i = 0; i < module_count && r == 0; i++)
    r = sl_write_module(b->writer, &modules[i], b->error);
  if (r == 0)
    r = sl_rank_sites_write(&b->sites, b->writer, b->error);
  if (r == 0)
    r = sl_rank_uses_write(b);
  if (r == 0)
    r = sl_rank_meshes_write(b);
  if (r == 0)
    r = sl_rank_rehearsed_groups_write(b);
  return r < 0 ? r : sl_put_rank(b->writer, &cells, b->error);
}

struct sl_rank_builder *sl_rank_builder_free(struct sl_rank_builder *b) {
  if (!b)
    return NULL;
  SL_HASH_FREE(b->peaks);
  sl_rank_memory_free(&b->memory);
  sl_rank_allocations_free(&b->allocations);
  sl_rank_items_free(&b->items);
  sl_rank_steps_free(&b->steps);
  sl_rank_period_free(&b->life.current);
  sl_rank_period_free(&b->life.outside);
  sl_category_names_free(&b->categories);
  sl_rank_gap_free(&b->gap);
  sl_rank_sites_free(&b->sites);
  sl_rank_uses_free(&b->uses);
  b->repeats = sl_rank_repeats_free(b->repeats);
  b->phases = sl_phases_free(b->phases);
  b->states = sl_module_states_free(b->states);
  b->sweep = sl_sweep_free(b->sweep);
  b->tracker = sl_tracker_free(b->tracker);
  b->segments = sl_driver_segments_free(b->segments);
  b->collectives = sl_collectives_free(b->collectives);
  b->balance = sl_device_balance_free(b->balance);
  b->refusals = sl_refusals_free(b->refusals);
  b->retries = sl_retries_free(b->retries);
  free(b);
  return NULL;
}

/* ---- callbacks ---- */

static size_t state_item_add(void *context, const struct sl_item *state) {
  struct sl_rank_builder *b = context;
  struct sl_item *item = sl_rank_items_add(&b->items, state->type, b->clock.now_ns);
  if (!item)
    return SIZE_MAX;
  *item = *state;
  item->at_ns = b->clock.now_ns;
  return b->items.count - 1;
}

static void state_item_withdraw(void *context, size_t index) {
  struct sl_rank_builder *b = context;
  if (index < b->items.count)
    b->items.list[index].type = SL_ITEM_none;
}

static int collective_row(void *context, const struct sl_collective_row *row, struct sl_error *error) {
  struct sl_rank_builder *b = context;
  return sl_rank_repeats_collective(b->repeats, &b->life, row, error);
}

/* ---- beginning and end ---- */

/* false: no memory. */
static bool parts_make(struct sl_rank_builder *b, const struct sl_user_rules *rules) {
  const struct sl_phase_listener phase_listener = {b, sl_rank_phase_opened, sl_rank_phase_closed};
  const struct sl_sweep_listener sweep_listener = {b, sl_rank_sweep_snapshot, sl_rank_sweep_peak, sl_rank_sweep_parent};
  const struct sl_states_sink states_sink = {b, state_item_add, state_item_withdraw};
  const struct sl_collective_host host = {b, collective_row, sl_rank_allocation_containing, sl_rank_allocation_sized};
  sl_rank_memory_init(&b->memory);
  if (sl_category_names_init(&b->categories, rules) < 0 || sl_rank_sites_init(&b->sites, b->log, rules) < 0)
    return false;
  facts_take(b);
  b->phases = sl_phases_new(b->log, &phase_listener);
  b->sweep = sl_sweep_new(&sweep_listener);
  b->tracker = b->phases ? sl_tracker_new(b->phases) : NULL;
  b->states = b->phases ? sl_module_states_new(b->phases, &states_sink) : NULL;
  b->segments = sl_driver_segments_new(b->log, b->writer);
  b->balance = sl_device_balance_new(b->writer, b->segments);
  b->refusals = sl_refusals_new();
  b->retries = sl_retries_new(b->writer);
  b->collectives = b->phases ? sl_collectives_new(b->log, b->writer, b->phases, &host) : NULL;
  b->repeats = sl_rank_repeats_new(b->writer, b->phases, &b->allocations);
  b->life.current.pattern = sl_rank_pattern_new();
  b->life.outside.pattern = sl_rank_pattern_new();
  return b->phases && b->states && b->sweep && b->tracker && b->segments && b->collectives && b->balance &&
         b->refusals && b->retries && b->repeats && b->life.current.pattern && b->life.outside.pattern &&
         sl_phases_use_rules(b->phases, rules) == 0;
}

struct sl_rank_builder *sl_rank_builder_new(struct sl_log *log, struct sl_ledger_writer *writer,
                                            const struct sl_user_rules *rules, struct sl_error *error) {
  struct sl_rank_builder *b = calloc(1, sizeof *b);
  if (b) {
    b->log = log;
    b->writer = writer;
    b->error = error;
    b->restore.goes_on = true;
  }
  if (b && parts_make(b, rules) && sl_rank_period_begin(b, SL_PERIOD_setup, -1, 0) == 0)
    return b;
  sl_no_memory(error);
  return sl_rank_builder_free(b);
}

void sl_rank_builder_keep_all(struct sl_rank_builder *b) {
  b->life.current.pattern = sl_rank_pattern_free(b->life.current.pattern);
  b->life.outside.pattern = sl_rank_pattern_free(b->life.outside.pattern);
  sl_rank_repeats_keep_all(b->repeats);
}

void sl_rank_builder_figures_only(struct sl_rank_builder *b) {
  sl_rank_builder_keep_all(b); /* none waits for another one */
  b->figures_only = true;
}

void sl_rank_builder_limit_calls(struct sl_rank_builder *b, uint32_t waiting) {
  sl_collectives_limit(b->collectives, waiting);
}

int sl_rank_builder_event(struct sl_rank_builder *b, const struct sl_event *event) {
  struct sl_rank_clock *clock = &b->clock;
  int r = 0;
  clock->at++;
  /* Definitions are read first, whenever they were made: they say nothing about the time. */
  if (event->thread != 0 && event->time_ns > clock->now_ns)
    clock->now_ns = event->time_ns;
  if (!clock->start_ns || event->time_ns < clock->start_ns)
    clock->start_ns = event->time_ns;
  if (event->time_ns > clock->end_ns)
    clock->end_ns = event->time_ns;
  if (event->type == SL_EVENT_process_end)
    b->clean_exit = true;
  if (event->type == SL_EVENT_device) {
    const struct sl_event_device *device = event->payload;
    if (device->id < SL_DEVICES_MAX)
      b->memory.devices[device->id].info = *device;
  }
  if (b->restore.goes_on && event->thread != 0)
    r = sl_rank_restore_finish(b);
  if (r == 0)
    r = on_event(b, event);
  return r < 0 ? r : sl_rank_period_piece(b);
}

/* The log has ended. */
static int builder_finish(struct sl_rank_builder *b) {
  int r = b->restore.goes_on ? sl_rank_restore_finish(b) : 0;
  if (r < 0)
    return r;
  r = sl_rank_life_end(b);
  if (r == 0)
    r = sl_driver_segments_finish(b->segments, b->error);
  if (r == 0)
    r = sl_collectives_finish(b->collectives, b->error);
  if (r == 0)
    r = sl_rank_repeats_finish(b->repeats, b->error);
  if (r == 0)
    r = sl_exposed_time_write(b->writer, b->error);
  if (r == 0)
    r = rank_write(b, &b->memory.devices[b->memory.device >= 0 ? b->memory.device : 0].info);
  return r;
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
    if (options && options->progress && b->clock.at % PROGRESS_EVENTS == 0)
      options->progress(options->progress_context, sl_log_bytes_read(log), total);
  }
  if (r == 0)
    r = builder_finish(b);
  sl_rank_builder_free(b);
  sl_log_past_free(past);
  return r;
}

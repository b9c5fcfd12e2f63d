/*
 * It listens to the rows that would go into a ledger, and keeps of them what is asked: the latest steps, peaks and
 * collectives.
 */
#include "rank_live.h"

#include "storage/grow.h"
#include "storage/log/log_past.h"
#include "storage/rank/rank_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 5, WAITING_CALLS = 1 << 14 };

struct sl_live_rank {
  char *directory;
  const struct sl_user_rules *rules;
  bool figures_only;
  struct sl_log *log;
  struct sl_log_past *past;
  struct sl_ledger_writer *writer; /* a listener of this */
  struct sl_rank_builder *builder;
  struct sl_error error; /* the builder's */
  bool begun;            /* events of threads have been read */
  char *allocator;       /* what was known of it when they were */
  int patience;          /* reads that wait for the rest of a snapshot; what is missing then is missing */

  struct sl_live_share shares[SL_CATEGORY_limit]; /* of the step whose row comes next */
  size_t share_count;
  struct sl_live_collective *collectives; /* a ring of SL_LIVE_COLLECTIVES, with as much room as is in use */
  uint64_t collective_count;
  struct sl_live_state state; /* what is kept of it between reads; once it is settled, all there is to tell */
  bool settled;
  struct sl_own_texts {
    struct own_text {
      const char *of; /* the log's */
      char *text;
    } * texts;
    size_t count;
  } own; /* once it is settled */
};

static const char *module_name(const struct sl_rank_view *view, uint32_t id) {
  const struct sl_module_info *module = sl_phases_module(view->phases, id);
  return module ? module->fqn : NULL;
}

/* kind: of the phase; -1: outside of all. */
static void peak_take(struct sl_live_peak *peak, const struct sl_rank_view *view, uint64_t bytes, uint64_t at_ns,
                      const struct sl_period_row *row, int kind, uint32_t module) {
  const bool in_step = row->kind == SL_PERIOD_step;
  *peak = (struct sl_live_peak){
      .bytes = bytes, .at_ns = at_ns, .step = in_step ? row->step : -1, .after = in_step ? -1 : row->step};
  snprintf(peak->period, sizeof peak->period, "%s", row->name ? row->name : "");
  const char *fqn = module_name(view, module);
  snprintf(peak->phase, sizeof peak->phase, "%s", kind >= 0 ? sl_kind_name((enum sl_kind)kind) : "");
  snprintf(peak->module, sizeof peak->module, "%s", fqn ? fqn : "");
}

static int peak_kind(const struct sl_period_row *row) {
  return row->peak_phase ? row->peak_kind : -1;
}

/* ---- what the ledger's rows tell ---- */

static void on_period_category(void *context, const char *category, uint64_t bytes) {
  struct sl_live_rank *rank = context;
  if (rank->share_count == sizeof rank->shares / sizeof rank->shares[0])
    return;
  struct sl_live_share *share = &rank->shares[rank->share_count++];
  snprintf(share->category, sizeof share->category, "%s", category);
  share->bytes = bytes;
}

static int by_size(const void *left, const void *right) {
  const struct sl_live_share *a = left, *b = right;
  return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : strcmp(a->category, b->category);
}

static void period_peak_take(struct sl_live_state *state, const struct sl_rank_view *view,
                             const struct sl_period_row *row) {
  if (row->peak.allocated_bytes > state->peak.bytes)
    peak_take(&state->peak, view, row->peak.allocated_bytes, row->peak_ns, row, peak_kind(row), row->peak_module);
  if (row->peak.reserved_bytes > state->peak_reserved)
    state->peak_reserved = row->peak.reserved_bytes;
}

static void on_period(void *context, const struct sl_period_row *row) {
  struct sl_live_rank *rank = context;
  struct sl_live_state *state = &rank->state;
  struct sl_rank_view view;
  sl_rank_view(rank->builder, &view);
  period_peak_take(state, &view, row);
  if (row->kind != SL_PERIOD_step) {
    rank->share_count = 0;
    return;
  }
  state->last = *row;
  peak_take(&state->last_peak, &view, row->peak.allocated_bytes, row->peak_ns, row, peak_kind(row), row->peak_module);
  state->steps++;
  state->steps_agreed += row->checked == 1;
  state->steps_differed += row->checked == 0;
  qsort(rank->shares, rank->share_count, sizeof *rank->shares, by_size);
  memcpy(state->shares, rank->shares, sizeof rank->shares);
  state->share_count = rank->share_count;
  rank->share_count = 0;
}

static void on_collective(void *context, const struct sl_collective_row *row) {
  struct sl_live_rank *rank = context;
  if (!row->start_ns || !row->end_ns || !row->has_comm || row->seq < 0)
    return;
  if (rank->collective_count < SL_LIVE_COLLECTIVES) {
    void *grown = sl_list_grow(rank->collectives, rank->collective_count, sizeof *rank->collectives);
    if (!grown)
      return; /* it is of those that are not known */
    rank->collectives = grown;
  }
  struct sl_rank_view view;
  sl_rank_view(rank->builder, &view);
  rank->collectives[rank->collective_count++ % SL_LIVE_COLLECTIVES] = (struct sl_live_collective){
      .operation = row->operation,
      .module = module_name(&view, row->module),
      .comm = row->comm,
      .bytes = row->has_bytes ? row->bytes : 0,
      .start_ns = row->start_ns,
      .end_ns = row->end_ns,
      .seq = row->seq,
      .step = row->step,
      .kernel_calls = row->kernel_calls ? row->kernel_calls : 1,
  };
}

/* ---- what the events tell ---- */

static void refusal_note(struct sl_live_rank *rank, const struct sl_event *event) {
  const struct sl_event_allocator *allocator = event->payload;
  struct sl_live_state *state = &rank->state;
  if (allocator->action != SL_OUT_OF_MEMORY)
    return;
  struct sl_rank_view view;
  sl_rank_view(rank->builder, &view);
  const struct sl_phase *phase = sl_rank_view_phase(rank->builder, event);
  state->refusals++;
  state->refused_bytes = allocator->bytes;
  peak_take(&state->refused_at, &view, sl_rank_memory_now(view.memory).allocated_bytes, event->time_ns, view.current,
            phase ? (int)phase->kind : -1, sl_phase_module(phase));
}

static void sample_note(struct sl_live_rank *rank, const struct sl_event_device_sample *sample) {
  struct sl_live_state *state = &rank->state;
  struct sl_rank_view view;
  sl_rank_view(rank->builder, &view);
  if (view.memory->device >= 0 && (int)sample->device != view.memory->device)
    return;
  state->device_bytes = sample->total_bytes;
  state->device_used = sample->total_bytes - sample->free_bytes;
  if (state->device_used > state->peak_device)
    state->peak_device = state->device_used;
}

static void event_note(struct sl_live_rank *rank, const struct sl_event *event) {
  switch (event->type) {
  case SL_EVENT_process_end: rank->state.ended = true; break;
  case SL_EVENT_gap: {
    const struct sl_event_gap *gap = event->payload;
    rank->state.gaps++;
    rank->state.gap = sl_log_string(rank->log, gap->reason);
    break;
  }
  case SL_EVENT_device_sample: sample_note(rank, event->payload); break;
  case SL_EVENT_allocator: refusal_note(rank, event); break;
  default: break;
  }
}

/* ---- reading ---- */

static void own_texts_free(struct sl_own_texts *own) {
  for (size_t i = 0; i < own->count; i++)
    free(own->texts[i].text);
  free(own->texts);
  *own = (struct sl_own_texts){0};
}

static void rank_stop(struct sl_live_rank *rank) {
  rank->builder = sl_rank_builder_free(rank->builder);
  rank->writer = sl_ledger_writer_close(rank->writer);
  rank->past = sl_log_past_free(rank->past);
  rank->log = sl_log_close(rank->log);
  free(rank->allocator);
  rank->allocator = NULL;
}

/* From the beginning of the log on. */
static int rank_start(struct sl_live_rank *rank, struct sl_error *error) {
  const struct sl_ledger_listener listener = {rank, on_period_category, on_period, on_collective};
  rank_stop(rank);
  rank->begun = false;
  rank->patience = PATIENCE;
  rank->share_count = 0;
  rank->collective_count = 0;
  rank->state = (struct sl_live_state){.figures_only = rank->figures_only, .last = {.step = -1}, .step = -1};
  int r = sl_log_open(rank->directory, &rank->log, error);
  if (r == 0)
    r = sl_ledger_writer_listen(&listener, &rank->writer, error);
  if (r == 0 && !(rank->past = sl_log_past_new(rank->log, true)))
    r = sl_no_memory(error);
  if (r == 0 && !(rank->builder = sl_rank_builder_new(rank->log, rank->writer, rank->rules, &rank->error)))
    r = sl_no_memory(error);
  if (r == 0) {
    /* A step is told when it ends, not when the next one has shown what it was. */
    sl_rank_builder_keep_all(rank->builder);
    if (rank->figures_only)
      sl_rank_builder_figures_only(rank->builder);
    /* Most steps' device times are not recorded: their calls would wait for kernels to the end of the log. */
    sl_rank_builder_limit_calls(rank->builder, WAITING_CALLS);
  }
  return r < 0 ? r : sl_log_follow(rank->log, error);
}

int sl_live_rank_open(const char *directory, const struct sl_user_rules *rules, bool figures_only,
                      struct sl_live_rank **out, struct sl_error *error) {
  struct sl_live_rank *rank = calloc(1, sizeof *rank);
  int r = rank ? 0 : -ENOMEM;
  if (r == 0) {
    rank->rules = rules;
    rank->figures_only = figures_only;
    rank->directory = strdup(directory);
    r = rank->directory ? rank_start(rank, error) : -ENOMEM;
  }
  if (r == -ENOMEM)
    sl_no_memory(error);
  *out = r < 0 ? sl_live_rank_close(rank) : rank;
  return r;
}

struct sl_live_rank *sl_live_rank_close(struct sl_live_rank *rank) {
  if (!rank)
    return NULL;
  rank_stop(rank);
  free(rank->collectives);
  own_texts_free(&rank->own);
  free(rank->directory);
  free(rank);
  return NULL;
}

int sl_live_rank_look(struct sl_live_rank *rank, struct sl_error *error) {
  return rank->settled ? 0 : sl_log_follow(rank->log, error);
}

/* What must be known before the first event of the allocator, and changes what all of them mean. */
static char *allocator_facts(const struct sl_live_rank *rank) {
  static const char *const keys[] = {"allocator_backend", "allocator_config", "cublas_workspaces"};
  char *text = NULL;
  const char *values[3];
  for (int i = 0; i < 3; i++)
    values[i] = sl_log_info(rank->log, keys[i]) ? sl_log_info(rank->log, keys[i]) : "";
  return asprintf(&text, "%s|%s|%s", values[0], values[1], values[2]) < 0 ? NULL : text;
}

/*
 * Definitions come first in a log that is read whole. Here those that matter for what has been read already may come
 * afterwards, because recording began late: then the log is read again from its beginning.
 */
static int definitions_read(struct sl_live_rank *rank, bool *again, struct sl_error *error) {
  struct sl_event event;
  int r;
  sl_log_hold(rank->log, 0);
  while ((r = sl_log_next(rank->log, &event, error)) > 0) {
    *again |= rank->begun && event.type == SL_EVENT_allocator_restore;
    r = *again ? 0 : sl_rank_builder_event(rank->builder, &event);
    if (r < 0)
      break;
  }
  if (r < 0) {
    if (!error->text[0])
      *error = rank->error;
    return r;
  }
  char *facts = allocator_facts(rank);
  if (!facts)
    return sl_no_memory(error);
  *again |= rank->begun && rank->allocator && strcmp(facts, rank->allocator) != 0;
  free(rank->allocator);
  rank->allocator = facts;
  return 0;
}

/* A snapshot of the allocator is being written, and not all of it was there at the last look. */
static bool is_snapshot_partial(const struct sl_live_rank *rank) {
  struct sl_rank_view view;
  sl_rank_view(rank->builder, &view);
  return sl_rank_memory_is_partial(view.memory);
}

/* Where allocations came from and what used them: the first event has begun what needs one, and figures need no more.
 */
static void details_leave_out(struct sl_log *log) {
  static const uint8_t types[] = {SL_EVENT_use, SL_EVENT_allocator_site, SL_EVENT_allocator_note};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    sl_log_leave_out(log, types[i]);
}

int sl_live_rank_read(struct sl_live_rank *rank, uint64_t until_ns, uint64_t events, struct sl_error *error) {
  bool again = false;
  if (rank->settled)
    return 0;
  int r = definitions_read(rank, &again, error);
  if (r == 0 && again) {
    again = false;
    r = rank_start(rank, error);
    if (r == 0)
      r = definitions_read(rank, &again, error);
  }
  if (r < 0)
    return r;
  if (!rank->begun && is_snapshot_partial(rank) && until_ns != UINT64_MAX && rank->patience-- > 0)
    return 0;
  sl_log_hold(rank->log, until_ns);
  struct sl_event event;
  for (uint64_t i = 0; i < events && (r = sl_log_past_next(rank->past, &event, error)) > 0; i++) {
    if (!rank->begun && rank->figures_only)
      details_leave_out(rank->log);
    rank->begun = true;
    if (event.time_ns > rank->state.last_ns)
      rank->state.last_ns = event.time_ns;
    r = sl_rank_builder_event(rank->builder, &event);
    if (r < 0) {
      *error = rank->error;
      return r;
    }
    event_note(rank, &event);
    r = 1;
  }
  if (sl_log_left_out_ns(rank->log) > rank->state.last_ns)
    rank->state.last_ns = sl_log_left_out_ns(rank->log);
  return r;
}

/* ---- the state ---- */

/* The phase that was opened last and is still open: a rank's work is on one thread at a time. */
static void frames_find(const struct sl_rank_view *view, struct sl_live_state *out) {
  const struct sl_phase *innermost = NULL;
  for (const struct sl_phase *phase = sl_phases_list(view->phases); phase; phase = phase->next)
    if (!phase->end_at)
      innermost = phase;
  out->frame_count = 0;
  for (const struct sl_phase *phase = innermost; phase && out->frame_count < SL_LIVE_FRAMES; phase = phase->parent)
    if (phase->kind != SL_KIND_step)
      out->frames[out->frame_count++] = (struct sl_live_place){
          .phase = sl_kind_name(phase->kind),
          .name = phase->name,
          .module = module_name(view, phase->module),
      };
}

void sl_live_rank_state(struct sl_live_rank *rank, struct sl_live_state *out) {
  struct sl_rank_view view;
  struct sl_log_counts counts;
  *out = rank->state;
  if (rank->settled)
    return;
  sl_rank_view(rank->builder, &view);
  const struct sl_rank_memory *memory = view.memory;
  sl_log_counts(rank->log, &counts);
  out->world_size = sl_log_info_number(rank->log, "world_size");
  out->local_rank = sl_log_info_number(rank->log, "local_rank");
  out->pid = sl_log_info_number(rank->log, "pid");
  out->host = sl_log_info(rank->log, "host");
  out->slurm_job_id = sl_log_info(rank->log, "slurm_job_id");
  out->run_id = sl_log_info(rank->log, "torchelastic_run_id");
  out->torch_version = sl_log_info(rank->log, "torch_version");
  out->k8s_node = sl_log_info(rank->log, "k8s_node_name");
  out->k8s_namespace = sl_log_info(rank->log, "k8s_namespace_name");
  out->k8s_pod = sl_log_info(rank->log, "k8s_pod_name");
  out->device = memory->device >= 0 ? memory->device : sl_log_info_number(rank->log, "device");
  const struct sl_event_device *device = &memory->devices[memory->device >= 0 ? memory->device : 0].info;
  if (device->total_bytes) {
    out->device_name = sl_log_string(rank->log, device->name);
    out->device_uuid = sl_log_string(rank->log, device->uuid);
    out->device_bytes = device->total_bytes;
  }
  out->events = counts.events;
  out->lost = counts.lost + memory->unknown;
  out->recorded = memory->device >= 0;
  out->drivers_pool = memory->drivers_pool;
  out->now = sl_rank_memory_now(memory);
  out->retries = view.retries;
  out->step = sl_phases_step(view.phases);
  out->start_ns = view.current->start_ns;
  frames_find(&view, out);
  const struct sl_period_row *row = view.current;
  peak_take(&out->step_peak, &view, row->peak.allocated_bytes, row->peak_ns, row, peak_kind(row), row->peak_module);
  period_peak_take(out, &view, row);
  if (view.outside)
    period_peak_take(out, &view, view.outside);
}

int sl_live_rank_categories(struct sl_live_rank *rank, struct sl_live_state *out) {
  if (rank->settled || rank->figures_only)
    return 0; /* they came with the state, or are not known */
  struct sl_rank_view view;
  sl_rank_view(rank->builder, &view);
  const size_t count = sl_live_categories(&view, out->categories, SL_LIVE_CATEGORIES);
  out->category_count = count == SIZE_MAX ? 0 : count;
  return count == SIZE_MAX ? -ENOMEM : 0;
}

bool sl_live_rank_ended(const struct sl_live_rank *rank) {
  return rank->state.ended;
}

uint64_t sl_live_rank_last_ns(const struct sl_live_rank *rank) {
  return rank->state.last_ns;
}

uint64_t sl_live_rank_held(const struct sl_live_rank *rank) {
  return rank->settled ? 0 : sl_log_held(rank->log);
}

int64_t sl_live_rank_world_size(const struct sl_live_rank *rank) {
  return rank->settled ? rank->state.world_size : sl_log_info_number(rank->log, "world_size");
}

const char *sl_live_rank_host(const struct sl_live_rank *rank) {
  return rank->settled ? rank->state.host : sl_log_info(rank->log, "host");
}

size_t sl_live_rank_collectives(const struct sl_live_rank *rank, struct sl_live_collective *out, size_t capacity) {
  const uint64_t all = rank->collective_count;
  const uint64_t kept = all < SL_LIVE_COLLECTIVES ? all : SL_LIVE_COLLECTIVES;
  size_t count = 0;
  int64_t newest = -1;
  for (uint64_t i = all - kept; i < all; i++)
    if (rank->collectives[i % SL_LIVE_COLLECTIVES].step > newest)
      newest = rank->collectives[i % SL_LIVE_COLLECTIVES].step;
  for (uint64_t i = all - kept; i < all && count < capacity; i++)
    if (rank->collectives[i % SL_LIVE_COLLECTIVES].step > newest - SL_LIVE_COLLECTIVE_STEPS)
      out[count++] = rank->collectives[i % SL_LIVE_COLLECTIVES];
  return count;
}

/* ---- settling ---- */

/* A copy of a text of the log, one for all that have the same. false: no memory. */
static bool text_own(struct sl_own_texts *own, const char **text) {
  for (size_t i = 0; i < own->count; i++)
    if (own->texts[i].of == *text) {
      *text = own->texts[i].text;
      return true;
    }
  struct own_text *grown = *text ? sl_list_grow(own->texts, own->count, sizeof *grown) : NULL;
  char *copy = grown ? strdup(*text) : NULL;
  own->texts = grown ? grown : own->texts;
  if (!copy)
    return !*text;
  own->texts[own->count++] = (struct own_text){*text, copy};
  *text = copy;
  return true;
}

static bool state_own(struct sl_own_texts *own, struct sl_live_state *state) {
  const char **const texts[] = {&state->host,    &state->device_name,   &state->device_uuid, &state->slurm_job_id,
                                &state->run_id,  &state->torch_version, &state->k8s_node,    &state->k8s_namespace,
                                &state->k8s_pod, &state->gap,           &state->last.name};
  bool all = true;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    all = all && text_own(own, texts[i]);
  for (size_t i = 0; i < state->frame_count; i++)
    all = all && text_own(own, &state->frames[i].name) && text_own(own, &state->frames[i].module);
  return all;
}

int sl_live_rank_settle(struct sl_live_rank *rank) {
  struct sl_live_state *state = rank->settled ? NULL : calloc(1, sizeof *state);
  struct sl_live_collective *calls = rank->settled ? NULL : calloc(SL_LIVE_COLLECTIVES, sizeof *calls);
  struct sl_own_texts own = {0};
  size_t count = 0;
  int r = rank->settled || (state && calls) ? 0 : -ENOMEM;
  if (r < 0 || rank->settled)
    goto finish;
  sl_live_rank_state(rank, state);
  r = sl_live_rank_categories(rank, state);
  count = sl_live_rank_collectives(rank, calls, SL_LIVE_COLLECTIVES);
  for (size_t i = 0; i < count && r == 0; i++)
    r = text_own(&own, &calls[i].operation) && text_own(&own, &calls[i].module) ? 0 : -ENOMEM;
  if (r < 0 || !state_own(&own, state)) {
    r = -ENOMEM;
    goto finish;
  }
  rank_stop(rank);
  rank->settled = true;
  rank->state = *state;
  rank->own = own;
  own = (struct sl_own_texts){0};
  rank->collective_count = count;
  free(rank->collectives);
  struct sl_live_collective *less = count ? reallocarray(calls, count, sizeof *calls) : NULL;
  rank->collectives = less ? less : calls;
  calls = NULL;
finish:
  own_texts_free(&own);
  free(calls);
  free(state);
  return r;
}

/*
 * What each event of a log does to the phases of its rank.
 */
#include "phases.h"

#include "open_phases.h"
#include "plugin/format/events.h"
#include "range_meaning.h"
#include "unit_backwards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sl_phases *sl_phases_new(const struct sl_log *log, const struct sl_phase_listener *listener) {
  struct sl_phases *phases = calloc(1, sizeof *phases);
  if (!phases)
    return NULL;
  phases->log = log;
  phases->highest_step = -1;
  phases->listener = *listener;
  phases->modules = sl_module_table_new(log);
  return phases->modules ? phases : sl_phases_free(phases);
}

int sl_phases_use_rules(struct sl_phases *phases, const struct sl_user_rules *rules) {
  phases->rules = rules;
  phases->names = rules ? sl_user_rule_cache_new(rules) : NULL;
  return rules && !phases->names ? -ENOMEM : 0;
}

struct sl_phases *sl_phases_free(struct sl_phases *phases) {
  if (!phases)
    return NULL;
  phases->names = sl_user_rule_cache_free(phases->names);
  sl_open_ranges_clear(&phases->ranges);
  for (struct sl_phase *phase; (phase = sl_module_backwards_newest(&phases->module_backwards));)
    sl_module_backwards_forget(&phases->module_backwards, phase);
  sl_phase_list_free(&phases->list);
  SL_HASH_FREE(phases->calls);
  phases->modules = sl_module_table_free(phases->modules);
  free(phases);
  return NULL;
}

/* ---- ranges ---- */

bool sl_phases_ignores(const struct sl_phases *phases, uint32_t domain) {
  return domain < DOMAIN_LIMIT && phases->ignored_domain[domain];
}

const char *sl_phases_domain(const struct sl_phases *phases, uint32_t domain) {
  return domain < DOMAIN_LIMIT ? phases->domains[domain] : NULL;
}

/*
 * The companion numbers its steps; those of the user's are counted, since their names may say anything. A number that
 * is not above all before it (a counter that began again, a loop that always gives the same) is the next one instead,
 * so that a step is never two; so is one that is none.
 */
static int64_t step_number(struct sl_phases *phases, const struct meaning *meaning, uint64_t value) {
  const uint64_t recorded = meaning->by_user ? (uint64_t)phases->next_user_step++ : value;
  const bool fits = recorded <= SL_STEP_MAX && (int64_t)recorded > phases->highest_step;
  return phases->highest_step = fits ? (int64_t)recorded : phases->highest_step + 1;
}

static void step_close(struct sl_phases *phases, uint64_t time_ns, uint64_t at) {
  sl_unit_backwards_settle(phases, 0); /* what ended in the step is closed in it */
  sl_phase_close(phases, phases->step, time_ns, at);
}

/*
 * Steps stand outside of everything: what encloses them, like a range around the whole training, says nothing. One is
 * open at a time: where a step begins, the one before it ends, also if its own range goes on.
 */
static struct sl_phase *step_open(struct sl_phases *phases, const struct sl_event *event, uint64_t at, const char *name,
                                  const struct meaning *meaning, uint64_t value) {
  const int64_t number = step_number(phases, meaning, value);
  if (phases->step)
    step_close(phases, event->time_ns, at);
  phases->calls_era++;
  struct sl_phase *phase = sl_phase_open(phases, event, at, SL_KIND_step, name, 0, NULL);
  if (phase) {
    phase->step = number;
    phase->recorded_step = meaning->by_user ? (uint64_t)number : value;
    phases->step = phase;
  }
  return phase;
}

static void range_close(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  const enum sl_phase_point point = phase->point;
  const uint32_t module = phase->module;
  if (phase == phases->step) {
    step_close(phases, time_ns, at);
    return;
  }
  if (phase->resharded)
    return; /* it has ended, and is closed once it is known that no reduce follows */
  if (phase == phases->whole_backward)
    sl_unit_backwards_end(phases, time_ns, at);
  sl_phase_close(phases, phase, time_ns, at);
  sl_unit_backward_after(phases, point, module, time_ns, at);
}

static int range_pushed(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_push *push = event->payload;
  if (sl_phases_ignores(phases, push->domain))
    return sl_open_ranges_push(&phases->ranges, event->thread, push->domain, NULL);
  const char *name = sl_log_string(phases->log, push->name);
  struct meaning meaning = sl_range_meaning(phases, event->thread, push->domain, push->category, push->value, name);
  enum sl_phase_point point = meaning.point;
  uint32_t module = meaning.module;
  sl_unit_backwards_settle(phases, point == SL_POINT_reduce_scatter ? module : 0);
  int r = sl_unit_backward_before(phases, event, at, point, module);
  if (r < 0)
    return r;
  struct sl_phase *parent = sl_phases_current(phases, event->thread);
  if (meaning.kind == SL_KIND_optimizer_step && sl_phase_enclosing(parent, SL_KIND_optimizer_step))
    meaning.kind = SL_KIND_user; /* record_function's and the companion's range of the same step */
  struct sl_phase *phase = meaning.kind == SL_KIND_step
                               ? step_open(phases, event, at, name, &meaning, push->value)
                               : sl_phase_open(phases, event, at, meaning.kind, name, module, parent);
  if (!phase || sl_open_ranges_push(&phases->ranges, event->thread, push->domain, phase) < 0)
    return -ENOMEM;
  phase->point = point;
  if (meaning.kind == SL_KIND_backward && !module)
    phases->whole_backward = phase;
  if (meaning.kind == SL_KIND_backward && module && sl_phases_backward_begins(phases, phase) < 0)
    return -ENOMEM;
  sl_phase_tell(phases, phase);
  return 0;
}

static void range_popped(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_pop *pop = event->payload;
  struct sl_phase *phase;
  if (!sl_open_ranges_pop(&phases->ranges, event->thread, pop->domain, &phase))
    phases->unbalanced++;
  else if (phase)
    range_close(phases, phase, event->time_ns, at);
}

static int range_started(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_start *start = event->payload;
  const char *name = sl_log_string(phases->log, start->name);
  struct meaning meaning = sl_range_meaning(phases, event->thread, start->domain, start->category, start->value, name);
  struct sl_phase *phase;
  if (meaning.kind == SL_KIND_step) {
    phase = step_open(phases, event, at, name, &meaning, start->value);
  } else {
    struct sl_phase *parent = meaning.kind == SL_KIND_backward && phases->whole_backward
                                  ? phases->whole_backward
                                  : sl_phases_current(phases, event->thread);
    if (meaning.kind == SL_KIND_optimizer_step && sl_phase_enclosing(parent, SL_KIND_optimizer_step))
      meaning.kind = SL_KIND_user;
    phase = sl_phase_open(phases, event, at, meaning.kind, name, meaning.module, parent);
    if (phase && meaning.kind == SL_KIND_backward && !meaning.module)
      phases->whole_backward = phase;
  }
  if (!phase || sl_open_ranges_start(&phases->ranges, start->id, phase) < 0 ||
      (meaning.kind == SL_KIND_backward && meaning.module && sl_phases_backward_begins(phases, phase) < 0))
    return -ENOMEM;
  sl_phase_tell(phases, phase);
  return 0;
}

static void range_ended(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_end *end = event->payload;
  struct sl_phase *phase;
  if (!sl_open_ranges_end(&phases->ranges, end->id, &phase))
    phases->unbalanced++;
  else if (phase)
    range_close(phases, phase, event->time_ns, at);
}

/*
 * What this thread did next is lost, so whether its ranges went on is not known: they end here, but for a step, which
 * ends where the next one begins at the latest. Ends that come for them later mean nothing.
 */
static void thread_lost(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  for (struct sl_phase *phase; (phase = sl_open_ranges_top(&phases->ranges, event->thread));) {
    sl_open_ranges_forget(&phases->ranges, phase);
    if (phase->kind != SL_KIND_step)
      range_close(phases, phase, event->time_ns, at);
  }
}

static int event_take(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  switch (event->type) {
  case SL_EVENT_gap:
    if (sl_log_is_lost_stretch(phases->log, event->payload))
      thread_lost(phases, event, at);
    return 0;
  case SL_EVENT_module: return sl_module_table_add(phases->modules, event->payload, phases->rules);
  case SL_EVENT_nvtx_domain: {
    const struct sl_event_nvtx_domain *domain = event->payload;
    const char *name = sl_log_string(phases->log, domain->name);
    if (domain->id < DOMAIN_LIMIT)
      phases->domains[domain->id] = name;
    if (strcmp(name, SL_NVTX_DOMAIN) == 0)
      phases->shardledger_domain = (uint16_t)domain->id;
    if (strcmp(name, "NCCL") == 0 && domain->id < DOMAIN_LIMIT)
      phases->ignored_domain[domain->id] = true;
    return 0;
  }
  case SL_EVENT_range_push: return range_pushed(phases, event, at);
  case SL_EVENT_range_pop: range_popped(phases, event, at); return 0;
  case SL_EVENT_range_start: return range_started(phases, event, at);
  case SL_EVENT_range_end: range_ended(phases, event, at); return 0;
  default: return 0;
  }
}

int sl_phases_event(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const int r = event_take(phases, event, at);
  return r < 0 ? r : phases->r;
}

/* ---- modules ---- */

const struct sl_module_info *sl_phases_module(const struct sl_phases *phases, uint32_t id) {
  return sl_module_table_find(phases->modules, id);
}

const struct sl_module_info *sl_phases_modules(const struct sl_phases *phases, uint32_t *count) {
  return sl_module_table_all(phases->modules, count);
}

uint32_t sl_phases_named(const struct sl_phases *phases, const struct sl_phase *phase, uint32_t *modules,
                         uint32_t capacity) {
  const struct sl_module_info *own = sl_phases_module(phases, phase->module);
  if (!own || !capacity)
    return 0;
  modules[0] = own->id;
  if (strncmp(phase->name, "FSDP::", 6) != 0)
    return 1;
  return 1 + sl_module_table_shared_with(phases->modules, own->root, phase->name, modules + 1, capacity - 1);
}

uint64_t sl_phases_modules_repeated(const struct sl_phases *phases) {
  return sl_module_table_repeated(phases->modules);
}

bool sl_phases_is_aside(const struct sl_phases *phases, uint32_t module) {
  return sl_module_table_is_aside(phases->modules, module);
}

const struct sl_module_info *sl_phases_module_holding(const struct sl_phases *phases, uint32_t module,
                                                      const char *tensor_name) {
  return sl_module_table_holding(phases->modules, module, tensor_name);
}

/* ---- what the log and its phases are like ---- */

uint64_t sl_phases_unbalanced(const struct sl_phases *phases) {
  return phases->unbalanced;
}

struct sl_phase *sl_phases_list(const struct sl_phases *phases) {
  return phases->list.first;
}

struct sl_phase *sl_phases_latest(struct sl_phases *phases) {
  return phases->list.last;
}

int sl_phases_closed(struct sl_phases *phases, struct sl_phase ***out, size_t *count) {
  return sl_phase_list_closed(&phases->list, out, count);
}

void sl_phases_prune(struct sl_phases *phases) {
  sl_phase_list_prune(&phases->list);
}

/*
 * One file above the usual size: what a range means depends on the ranges that are open, and which are open on what
 * ranges mean.
 */
#include "phases.h"

#include "module_backwards.h"
#include "open_ranges.h"
#include "phase_list.h"
#include "plugin/format/events.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOMAIN_LIMIT = 256 };

struct call_count { /* (kind, module) → phases so far in this step */
  uint64_t key;
  uint32_t count;
  UT_hash_handle hh;
};

enum step_origin { STEPS_unknown, STEPS_of_companion, STEPS_of_user };

struct sl_phases {
  const struct sl_log *log;
  const struct sl_user_rules *rules; /* NULL: none */
  struct sl_user_rule_cache *names;  /* NULL: none */
  enum step_origin steps;            /* who says where steps are: the first to do so */
  int64_t next_user_step;
  int64_t highest_step; /* number given so far; -1: none */
  struct sl_phase_listener listener;
  struct sl_phase_list list;
  /* These know open phases only: phase_end takes one out of all of them. */
  struct sl_open_ranges ranges;
  struct sl_module_backwards module_backwards;
  struct sl_phase *whole_backward, *step;
  struct call_count *calls;
  struct sl_module_table *modules;
  uint32_t current_root;             /* of the last forward */
  uint16_t shardledger_domain;       /* 0: not seen */
  bool ignored_domain[DOMAIN_LIMIT]; /* NCCL's calls are collectives, not phases */
  uint64_t unbalanced;
};

static const struct {
  const char *prefix;
  enum sl_kind kind;
  enum sl_phase_point point;
} rules[] = {
#define RULE(prefix, kind, point) {prefix, SL_KIND_##kind, SL_POINT_##point},
#include "phase_rules.def"
#undef RULE
};

const char *sl_kind_name(enum sl_kind kind) {
  switch (kind) {
#define KIND(number, name, meaning)                                                                                    \
  case SL_KIND_##name:                                                                                                 \
    return #name;
#include "nvtx_ranges/kinds.def"
#undef KIND
  default: return "none";
  }
}

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

static void calls_clear(struct sl_phases *phases) {
  struct call_count *call, *next;
  HASH_ITER(hh, phases->calls, call, next) {
    HASH_DEL(phases->calls, call);
    free(call);
  }
}

struct sl_phases *sl_phases_free(struct sl_phases *phases) {
  if (!phases)
    return NULL;
  phases->names = sl_user_rule_cache_free(phases->names);
  sl_open_ranges_clear(&phases->ranges);
  for (struct sl_phase *phase; (phase = sl_module_backwards_newest(&phases->module_backwards));)
    sl_module_backwards_forget(&phases->module_backwards, phase);
  sl_phase_list_free(&phases->list);
  calls_clear(phases);
  phases->modules = sl_module_table_free(phases->modules);
  free(phases);
  return NULL;
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

/* ---- phases ---- */

/* What runs between a unit's reshard and its reduce is the unit's own ranges: anything else comes after its backward.
 */
static struct sl_phase *current_within(struct sl_phases *phases, struct sl_phase *top) {
  if (top && top != phases->whole_backward)
    return top;
  struct sl_phase *backward = sl_module_backwards_innermost(&phases->module_backwards);
  if (backward && (phases->whole_backward || !top))
    return backward;
  return top ? top : phases->whole_backward ? phases->whole_backward : phases->step;
}

struct sl_phase *sl_phases_current(struct sl_phases *phases, uint32_t thread) {
  return current_within(phases, sl_open_ranges_top(&phases->ranges, thread));
}

bool sl_phases_current_of_any(struct sl_phases *phases, struct sl_phase **out) {
  struct sl_phase *top;
  *out = NULL;
  if (!sl_open_ranges_only_top(&phases->ranges, phases->whole_backward, &top))
    return false;
  *out = current_within(phases, top);
  return true;
}

uint32_t sl_phase_module(const struct sl_phase *phase) {
  for (; phase; phase = phase->parent)
    if (phase->module)
      return phase->module;
  return 0;
}

struct sl_phase *sl_phase_enclosing(struct sl_phase *phase, enum sl_kind kind) {
  for (; phase; phase = phase->parent)
    if (phase->kind == kind)
      return phase;
  return NULL;
}

static struct sl_phase *phase_open(struct sl_phases *phases, const struct sl_event *event, uint64_t at,
                                   enum sl_kind kind, const char *name, uint32_t module, struct sl_phase *parent) {
  const struct sl_phase facts = {
      .kind = kind,
      .name = name,
      .module = module,
      .tid = event->tid,
      .thread = event->thread,
      .step = sl_phases_step(phases),
      .start_ns = event->time_ns,
      .start_at = at,
      .user_rule = phases->names ? sl_user_rule_cache_find(phases->names, name).category : NULL,
  };
  struct sl_phase *phase = sl_phase_list_add(&phases->list, &facts, parent);
  if (!phase)
    return NULL;
  uint64_t key = (uint64_t)kind << 32 | module;
  struct call_count *call;
  HASH_FIND(hh, phases->calls, &key, sizeof key, call);
  if (!call && (call = calloc(1, sizeof *call))) {
    call->key = key;
    SL_HASH_ADD(phases->calls, key, call);
  }
  if (!call)
    return NULL;
  phase->call_index = call->count++;
  return phase;
}

/* From here on nothing in phases points to the phase but the list of those that are to be pruned, and phases within it.
 */
static void phase_end(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  phase->end_ns = time_ns;
  phase->end_at = at;
  sl_open_ranges_forget(&phases->ranges, phase);
  sl_module_backwards_forget(&phases->module_backwards, phase);
  if (phases->whole_backward == phase)
    phases->whole_backward = NULL;
  if (phases->step == phase)
    phases->step = NULL;
  sl_phase_list_close(&phases->list, phase);
}

/* The listener may prune: the phase, and any other that was closed, may be gone afterwards. */
static void phase_close(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  phase_end(phases, phase, time_ns, at);
  phases->listener.closed(phases->listener.context, phase);
}

static int module_backward_add(struct sl_phases *phases, struct sl_phase *phase) {
  sl_module_table_saw_backward(phases->modules, phase->module);
  return sl_module_backwards_add(&phases->module_backwards, phase);
}

/* FSDP's ranges open a unit's backward before pre_backward runs, and reopen it for the reduce. */
static int fsdp_backward_before(struct sl_phases *phases, const struct sl_event *event, uint64_t at,
                                enum sl_phase_point point, uint32_t module) {
  if (point == SL_POINT_pre_backward && !sl_module_backwards_of(&phases->module_backwards, module)) {
    const struct sl_module_info *info = sl_phases_module(phases, module);
    struct sl_phase *parent = phases->whole_backward ? phases->whole_backward : phases->step;
    struct sl_phase *phase =
        phase_open(phases, event, at, SL_KIND_backward, info ? (*info->fqn ? info->fqn : info->class_name) : "backward",
                   module, parent);
    if (!phase || module_backward_add(phases, phase) < 0)
      return -ENOMEM;
    phase->derived = true;
    phases->listener.opened(phases->listener.context, phase);
  }
  struct sl_phase *reduced =
      point == SL_POINT_reduce_scatter ? sl_module_backwards_of(&phases->module_backwards, module) : NULL;
  if (reduced && reduced->resharded)
    sl_module_backwards_reduce(&phases->module_backwards, reduced);
  return 0;
}

/* A unit's backward ends with its reduce; without one (no gradient sync) with its reshard. */
static void fsdp_backward_after(struct sl_phases *phases, enum sl_phase_point point, uint32_t module, uint64_t time_ns,
                                uint64_t at) {
  if (point != SL_POINT_reduce_scatter && point != SL_POINT_post_backward_reshard)
    return;
  struct sl_module_backwards *backwards = &phases->module_backwards;
  struct sl_phase *phase = sl_module_backwards_of(backwards, module);
  if (!phase)
    return;
  if (point == SL_POINT_reduce_scatter) {
    phase_close(phases, phase, time_ns, at);
    return;
  }
  /* Closed by the next range of another unit, unless its reduce comes first. */
  struct sl_phase *first = backwards->resharded_count == SL_RESHARDED_MAX ? backwards->resharded[0] : NULL;
  if (first && !phase->resharded)
    phase_close(phases, first, first->end_ns, first->end_at);
  sl_module_backwards_reshard(backwards, phase, time_ns, at);
}

/* Closes module backwards that ended with their reshard, the latest first, now that something else than their reduce
 * follows. */
static void fsdp_backward_settle(struct sl_phases *phases, uint32_t reducing_module) {
  const struct sl_module_backwards *backwards = &phases->module_backwards;
  struct sl_phase *latest;
  do {
    latest = NULL;
    for (size_t i = 0; i < backwards->resharded_count; i++) {
      struct sl_phase *phase = backwards->resharded[i];
      if (phase->module != reducing_module && (!latest || phase->id > latest->id))
        latest = phase;
    }
    if (latest)
      phase_close(phases, latest, latest->end_ns, latest->end_at);
  } while (latest);
}

/* Closes what a backward pass left open when it ends. */
static void module_backwards_end(struct sl_phases *phases, uint64_t time_ns, uint64_t at) {
  for (struct sl_phase *phase; (phase = sl_module_backwards_newest(&phases->module_backwards));)
    phase_close(phases, phase, phase->resharded ? phase->end_ns : time_ns, phase->resharded ? phase->end_at : at);
}

/* ---- what a range means ---- */

struct meaning {
  enum sl_kind kind;
  enum sl_phase_point point;
  uint32_t module;
  bool by_user;
};

/* The module that a rule's range serves: one that encloses it, else the first of the model. 0: none fits. */
static uint32_t module_of_rule(const struct sl_phases *phases, const struct sl_user_rule *rule,
                               const struct sl_phase *around) {
  for (; around; around = around->parent) {
    const struct sl_module_info *module = sl_phases_module(phases, around->module);
    if (module && fnmatch(rule->module, module->fqn, 0) == 0)
      return module->id;
  }
  uint32_t count;
  const struct sl_module_info *modules = sl_module_table_all(phases->modules, &count);
  for (uint32_t i = 0; i < count; i++)
    if (fnmatch(rule->module, modules[i].fqn, 0) == 0)
      return modules[i].id;
  return 0;
}

/* The first rule of the user's that fits the name, and whose module is there. */
static bool meaning_by_user(struct sl_phases *phases, uint32_t thread, const char *name, struct meaning *out) {
  const struct sl_user_rule *rule = phases->names ? sl_user_rule_cache_find(phases->names, name).kind : NULL;
  for (; rule; rule = sl_user_rule_find(phases->rules, SL_USER_RULE_range_kind, name, rule)) {
    uint32_t module = rule->module ? module_of_rule(phases, rule, sl_phases_current(phases, thread)) : 0;
    if (rule->module && !module)
      continue;
    *out = (struct meaning){rule->kind, SL_POINT_none, module, true};
    return true;
  }
  return false;
}

static struct meaning meaning_by_table(const struct sl_phases *phases, const char *name) {
  struct meaning meaning = {.kind = SL_KIND_user};
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (strncmp(name, rules[i].prefix, strlen(rules[i].prefix)) == 0) {
      meaning.kind = rules[i].kind;
      meaning.point = rules[i].point;
      break;
    }
  if (strncmp(name, "FSDP::", 6) == 0 && (meaning.point != SL_POINT_none || meaning.kind == SL_KIND_prefetch))
    meaning.module = sl_module_table_of_fsdp_name(phases->modules, phases->current_root, name);
  return meaning;
}

bool sl_phases_ignores(const struct sl_phases *phases, uint32_t domain) {
  return domain < DOMAIN_LIMIT && phases->ignored_domain[domain];
}

/* What the companion says of its own ranges is not up to rules; everything else goes by its name. */
static struct meaning meaning_of(struct sl_phases *phases, uint32_t thread, uint16_t domain, uint16_t category,
                                 uint64_t value, const char *name) {
  struct meaning meaning = {.kind = SL_KIND_user};
  if (phases->shardledger_domain && domain == phases->shardledger_domain && category && category < SL_KIND_count)
    meaning.kind = (enum sl_kind)category;
  if (meaning.kind == SL_KIND_user || meaning.kind == SL_KIND_record_function) {
    enum sl_kind said = meaning.kind;
    if (!meaning_by_user(phases, thread, name, &meaning) && said == SL_KIND_record_function)
      meaning = meaning_by_table(phases, name);
  } else if (meaning.kind == SL_KIND_forward || meaning.kind == SL_KIND_backward || meaning.kind == SL_KIND_recompute ||
             meaning.kind == SL_KIND_eval) {
    meaning.module = (uint32_t)value;
  }
  const struct sl_module_info *info = sl_phases_module(phases, meaning.module);
  if (info && (meaning.kind == SL_KIND_forward || meaning.kind == SL_KIND_recompute || meaning.kind == SL_KIND_eval))
    phases->current_root = info->root;
  /* The same thing may be named twice, by the companion and by the user: the outer one is it. */
  if (meaning.kind == SL_KIND_backward && !meaning.module && phases->whole_backward)
    meaning.kind = SL_KIND_user;
  if (meaning.kind == SL_KIND_step) {
    enum step_origin origin = meaning.by_user ? STEPS_of_user : STEPS_of_companion;
    if (phases->steps == STEPS_unknown)
      phases->steps = origin;
    if (phases->steps != origin || (meaning.by_user && phases->step))
      meaning.kind = SL_KIND_user;
  }
  return meaning;
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
  fsdp_backward_settle(phases, 0); /* what ended in the step is closed in it */
  phase_close(phases, phases->step, time_ns, at);
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
  calls_clear(phases);
  struct sl_phase *phase = phase_open(phases, event, at, SL_KIND_step, name, 0, NULL);
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
    module_backwards_end(phases, time_ns, at);
  phase_close(phases, phase, time_ns, at);
  fsdp_backward_after(phases, point, module, time_ns, at);
}

static int range_pushed(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_push *push = event->payload;
  if (sl_phases_ignores(phases, push->domain))
    return sl_open_ranges_push(&phases->ranges, event->thread, push->domain, NULL);
  const char *name = sl_log_string(phases->log, push->name);
  struct meaning meaning = meaning_of(phases, event->thread, push->domain, push->category, push->value, name);
  enum sl_phase_point point = meaning.point;
  uint32_t module = meaning.module;
  fsdp_backward_settle(phases, point == SL_POINT_reduce_scatter ? module : 0);
  int r = fsdp_backward_before(phases, event, at, point, module);
  if (r < 0)
    return r;
  struct sl_phase *parent = sl_phases_current(phases, event->thread);
  if (meaning.kind == SL_KIND_optimizer_step && sl_phase_enclosing(parent, SL_KIND_optimizer_step))
    meaning.kind = SL_KIND_user; /* record_function's and the companion's range of the same step */
  struct sl_phase *phase = meaning.kind == SL_KIND_step
                               ? step_open(phases, event, at, name, &meaning, push->value)
                               : phase_open(phases, event, at, meaning.kind, name, module, parent);
  if (!phase || sl_open_ranges_push(&phases->ranges, event->thread, push->domain, phase) < 0)
    return -ENOMEM;
  phase->point = point;
  if (meaning.kind == SL_KIND_backward && !module)
    phases->whole_backward = phase;
  if (meaning.kind == SL_KIND_backward && module && module_backward_add(phases, phase) < 0)
    return -ENOMEM;
  phases->listener.opened(phases->listener.context, phase);
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
  struct meaning meaning = meaning_of(phases, event->thread, start->domain, start->category, start->value, name);
  struct sl_phase *phase;
  if (meaning.kind == SL_KIND_step) {
    phase = step_open(phases, event, at, name, &meaning, start->value);
  } else {
    struct sl_phase *parent = meaning.kind == SL_KIND_backward && phases->whole_backward
                                  ? phases->whole_backward
                                  : sl_phases_current(phases, event->thread);
    if (meaning.kind == SL_KIND_optimizer_step && sl_phase_enclosing(parent, SL_KIND_optimizer_step))
      meaning.kind = SL_KIND_user;
    phase = phase_open(phases, event, at, meaning.kind, name, meaning.module, parent);
    if (phase && meaning.kind == SL_KIND_backward && !meaning.module)
      phases->whole_backward = phase;
  }
  if (!phase || sl_open_ranges_start(&phases->ranges, start->id, phase) < 0 ||
      (meaning.kind == SL_KIND_backward && meaning.module && module_backward_add(phases, phase) < 0))
    return -ENOMEM;
  phases->listener.opened(phases->listener.context, phase);
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

int sl_phases_event(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  switch (event->type) {
  case SL_EVENT_gap: {
    const struct sl_event_gap *gap = event->payload;
    if (strcmp(sl_log_string(phases->log, gap->source), "log") == 0)
      thread_lost(phases, event, at);
    return 0;
  }
  case SL_EVENT_module: return sl_module_table_add(phases->modules, event->payload, phases->rules);
  case SL_EVENT_nvtx_domain: {
    const struct sl_event_nvtx_domain *domain = event->payload;
    const char *name = sl_log_string(phases->log, domain->name);
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

/* ---- behind a gap ---- */

struct candidate { /* a phase that was open before the gap and may be open behind it */
  struct sl_phase *phase;
  size_t taken; /* of the first one of its kind: so many of them are */
};

static int compare_ranges(uint32_t thread, uint64_t start_ns, const char *name, const struct sl_phase *phase) {
  if (thread != phase->thread)
    return thread < phase->thread ? -1 : 1;
  if (start_ns != phase->start_ns)
    return start_ns < phase->start_ns ? -1 : 1;
  return strcmp(name, phase->name);
}

static int compare_candidates(const void *left, const void *right) {
  const struct sl_phase *a = ((const struct candidate *)left)->phase, *b = ((const struct candidate *)right)->phase;
  int order = compare_ranges(a->thread, a->start_ns, a->name, b);
  return order ? order : (a->id > b->id) - (a->id < b->id);
}

struct candidates {
  struct candidate *all;
  size_t count;
};

static int candidates_find(const struct sl_phases *phases, struct candidates *out) {
  size_t count = 0;
  for (const struct sl_phase *phase = phases->list.first; phase; phase = phase->next)
    count++;
  *out = (struct candidates){.all = malloc((count + 1) * sizeof *out->all)};
  if (!out->all)
    return -ENOMEM;
  for (struct sl_phase *phase = phases->list.first; phase; phase = phase->next) {
    phase->reopened = false;
    if (!phase->closed && !phase->derived && phase->kind != SL_KIND_step)
      out->all[out->count++] = (struct candidate){.phase = phase};
  }
  qsort(out->all, out->count, sizeof *out->all, compare_candidates);
  return 0;
}

/* The phase of the range, each one once, the first one first. NULL: none was open before the gap. */
static struct sl_phase *candidate_take(const struct candidates *candidates, const struct sl_event_kept_range *range,
                                       const char *name) {
  size_t low = 0, high = candidates->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (compare_ranges(range->thread, range->start_ns, name, candidates->all[middle].phase) > 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == candidates->count)
    return NULL;
  size_t next = low + candidates->all[low].taken;
  if (next >= candidates->count ||
      compare_ranges(range->thread, range->start_ns, name, candidates->all[next].phase) != 0)
    return NULL;
  candidates->all[low].taken++;
  return candidates->all[next].phase;
}

/* The phase of a range that was opened before or within a gap, and is open after it. */
static int range_reopen(struct sl_phases *phases, const struct candidates *candidates,
                        const struct sl_event_kept_range *range, uint64_t at) {
  const char *name = sl_log_string(phases->log, range->name);
  const struct sl_event event = {.thread = range->thread, .tid = range->tid, .time_ns = range->start_ns};
  struct sl_phase *phase = NULL;
  bool is_new = false;
  if (range->id || !sl_phases_ignores(phases, range->domain)) {
    phase = candidate_take(candidates, range, name);
    if (!phase) {
      struct meaning meaning = meaning_of(phases, range->thread, range->domain, range->category, range->value, name);
      enum sl_kind kind =
          meaning.kind == SL_KIND_step || meaning.kind == SL_KIND_backward ? SL_KIND_user : meaning.kind;
      phase = phase_open(phases, &event, at, kind, name, meaning.module, sl_phases_current(phases, range->thread));
      if (!phase)
        return -ENOMEM;
      phase->point = meaning.point;
      is_new = true;
    }
    phase->reopened = true;
  }
  int r = range->id ? sl_open_ranges_start(&phases->ranges, range->id, phase)
                    : sl_open_ranges_push(&phases->ranges, range->thread, range->domain, phase);
  if (r == 0 && is_new)
    phases->listener.opened(phases->listener.context, phase);
  return r;
}

int sl_phases_jump(struct sl_phases *phases, const struct sl_event_kept_range *ranges, size_t count, uint64_t time_ns,
                   uint64_t at) {
  struct candidates candidates;
  module_backwards_end(phases, time_ns, at);
  sl_open_ranges_clear(&phases->ranges);
  int r = candidates_find(phases, &candidates);
  for (size_t i = 0; i < count && r == 0; i++)
    r = range_reopen(phases, &candidates, &ranges[i], at);
  for (struct sl_phase *phase = phases->list.first, *next; phase && r == 0; phase = next) {
    next = phase->next;
    if (phase->closed || phase->reopened)
      continue;
    if (phase->kind == SL_KIND_step)
      phase_end(phases, phase, time_ns, at); /* what the gap cuts is no step */
    else
      phase_close(phases, phase, time_ns, at);
  }
  free(candidates.all);
  return r;
}

uint64_t sl_phases_modules_repeated(const struct sl_phases *phases) {
  return sl_module_table_repeated(phases->modules);
}

bool sl_phases_failed(const struct sl_phases *phases) {
  return sl_module_table_failed(phases->modules);
}

bool sl_phases_is_aside(const struct sl_phases *phases, uint32_t module) {
  return sl_module_table_is_aside(phases->modules, module);
}

const struct sl_module_info *sl_phases_module_holding(const struct sl_phases *phases, uint32_t module,
                                                      const char *tensor_name) {
  return sl_module_table_holding(phases->modules, module, tensor_name);
}

int64_t sl_phases_step(const struct sl_phases *phases) {
  return phases->step ? phases->step->step : -1;
}

uint64_t sl_phases_unbalanced(const struct sl_phases *phases) {
  return phases->unbalanced;
}

struct sl_phase *sl_phases_list(struct sl_phases *phases) {
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

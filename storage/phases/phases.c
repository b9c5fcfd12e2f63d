/*
 * One file above the usual size: what a range means depends on the ranges that are open, and which are open on what
 * ranges mean.
 */
#include "phases.h"

#include "plugin/events.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 512, DOMAIN_LIMIT = 256 };

struct thread_stack { /* open push/pop ranges of one thread */
  uint32_t thread;
  uint32_t depth;
  struct sl_phase *phases[MAX_DEPTH]; /* NULL entries: ranges that mean nothing here */
  uint16_t domains[MAX_DEPTH];
  UT_hash_handle hh;
};

struct open_range { /* start/end ranges by their id */
  uint64_t id;
  struct sl_phase *phase;
  UT_hash_handle hh;
};

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
  struct sl_phase_listener listener;
  uint64_t next_id;
  struct sl_phase *first, *last;
  struct thread_stack *threads;
  struct open_range *ranges;
  struct sl_phase **module_backwards; /* open ones, oldest first */
  uint32_t module_backward_count, module_backward_capacity;
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
  for (struct sl_phase *phase = phases->first, *next; phase; phase = next) {
    next = phase->next;
    free(phase);
  }
  struct thread_stack *thread, *next_thread;
  HASH_ITER(hh, phases->threads, thread, next_thread) {
    HASH_DEL(phases->threads, thread);
    free(thread);
  }
  struct open_range *range, *next_range;
  HASH_ITER(hh, phases->ranges, range, next_range) {
    HASH_DEL(phases->ranges, range);
    free(range);
  }
  struct call_count *call, *next_call;
  HASH_ITER(hh, phases->calls, call, next_call) {
    HASH_DEL(phases->calls, call);
    free(call);
  }
  free(phases->module_backwards);
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
static struct sl_phase *innermost_module_backward(const struct sl_phases *phases) {
  for (uint32_t i = phases->module_backward_count; i-- > 0;)
    if (!phases->module_backwards[i]->resharded)
      return phases->module_backwards[i];
  return NULL;
}

static struct thread_stack *stack_of(struct sl_phases *phases, uint32_t thread, bool create) {
  struct thread_stack *stack;
  HASH_FIND(hh, phases->threads, &thread, sizeof thread, stack);
  if (!stack && create && (stack = calloc(1, sizeof *stack))) {
    stack->thread = thread;
    SL_HASH_ADD(phases->threads, thread, stack);
  }
  return stack;
}

struct sl_phase *sl_phases_current(struct sl_phases *phases, uint32_t thread) {
  struct thread_stack *stack = stack_of(phases, thread, false);
  struct sl_phase *top = NULL;
  for (uint32_t i = stack ? stack->depth : 0; i-- > 0 && !top;)
    top = stack->phases[i];
  if (top && top != phases->whole_backward)
    return top;
  struct sl_phase *backward = innermost_module_backward(phases);
  if (backward && (phases->whole_backward || !top))
    return backward;
  return top ? top : phases->whole_backward ? phases->whole_backward : phases->step;
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
  struct sl_phase *phase = calloc(1, sizeof *phase);
  if (!phase)
    return NULL;
  *phase = (struct sl_phase){
      .id = ++phases->next_id,
      .kind = kind,
      .name = name,
      .module = module,
      .tid = event->tid,
      .thread = event->thread,
      .step = sl_phases_step(phases),
      .start_ns = event->time_ns,
      .start_at = at,
      .parent = parent,
      .user_rule = phases->names ? sl_user_rule_cache_find(phases->names, name).category : NULL,
  };
  uint64_t key = (uint64_t)kind << 32 | module;
  struct call_count *call;
  HASH_FIND(hh, phases->calls, &key, sizeof key, call);
  if (!call && (call = calloc(1, sizeof *call))) {
    call->key = key;
    SL_HASH_ADD(phases->calls, key, call);
  }
  if (!call) {
    free(phase);
    return NULL;
  }
  phase->call_index = call->count++;
  if (phases->last)
    phases->last->next = phase;
  else
    phases->first = phase;
  phases->last = phase;
  return phase;
}

static void phase_close(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  phase->end_ns = time_ns;
  phase->end_at = at;
  phases->listener.closed(phases->listener.context, phase);
}

static void calls_reset(struct sl_phases *phases) {
  for (struct call_count *call = phases->calls; call; call = call->hh.next)
    call->count = 0;
}

static int module_backward_push(struct sl_phases *phases, struct sl_phase *phase) {
  if (phases->module_backward_count == phases->module_backward_capacity) {
    uint32_t capacity = phases->module_backward_capacity ? 2 * phases->module_backward_capacity : 64;
    void *grown = realloc(phases->module_backwards, capacity * sizeof *phases->module_backwards);
    if (!grown)
      return -ENOMEM;
    phases->module_backwards = grown;
    phases->module_backward_capacity = capacity;
  }
  phases->module_backwards[phases->module_backward_count++] = phase;
  sl_module_table_saw_backward(phases->modules, phase->module);
  return 0;
}

static void module_backward_remove(struct sl_phases *phases, const struct sl_phase *phase) {
  for (uint32_t i = 0; i < phases->module_backward_count; i++)
    if (phases->module_backwards[i] == phase) {
      memmove(&phases->module_backwards[i], &phases->module_backwards[i + 1],
              (phases->module_backward_count - i - 1) * sizeof phases->module_backwards[0]);
      phases->module_backward_count--;
      return;
    }
}

static struct sl_phase *module_backward_find(const struct sl_phases *phases, uint32_t module) {
  for (uint32_t i = phases->module_backward_count; i-- > 0;)
    if (phases->module_backwards[i]->module == module)
      return phases->module_backwards[i];
  return NULL;
}

/* FSDP's ranges open a unit's backward before pre_backward runs, and reopen it for the reduce. */
static int fsdp_backward_before(struct sl_phases *phases, const struct sl_event *event, uint64_t at,
                                enum sl_phase_point point, uint32_t module) {
  if (point == SL_POINT_pre_backward && !module_backward_find(phases, module)) {
    const struct sl_module_info *info = sl_phases_module(phases, module);
    struct sl_phase *parent = phases->whole_backward ? phases->whole_backward : phases->step;
    struct sl_phase *phase =
        phase_open(phases, event, at, SL_KIND_backward, info ? (*info->fqn ? info->fqn : info->class_name) : "backward",
                   module, parent);
    if (!phase || module_backward_push(phases, phase) < 0)
      return -ENOMEM;
    phase->derived = true;
    phases->listener.opened(phases->listener.context, phase);
  }
  struct sl_phase *reduced = point == SL_POINT_reduce_scatter ? module_backward_find(phases, module) : NULL;
  if (reduced && reduced->resharded) {
    reduced->resharded = false;
    reduced->end_ns = reduced->end_at = 0;
  }
  return 0;
}

/* A unit's backward ends with its reduce; without one (no gradient sync) with its reshard. */
static void fsdp_backward_after(struct sl_phases *phases, const struct sl_phase *range, uint64_t time_ns, uint64_t at) {
  if (range->point != SL_POINT_reduce_scatter && range->point != SL_POINT_post_backward_reshard)
    return;
  struct sl_phase *phase = module_backward_find(phases, range->module);
  if (!phase)
    return;
  if (range->point == SL_POINT_post_backward_reshard) {
    phase->resharded = true; /* closed by the next range of another unit, unless its reduce comes first */
    phase->end_ns = time_ns;
    phase->end_at = at;
    return;
  }
  module_backward_remove(phases, phase);
  phase_close(phases, phase, time_ns, at);
}

/* Closes module backwards that ended with their reshard, now that something else than their reduce follows. */
static void fsdp_backward_settle(struct sl_phases *phases, uint32_t reducing_module) {
  for (uint32_t i = phases->module_backward_count; i-- > 0;) {
    struct sl_phase *phase = phases->module_backwards[i];
    if (!phase->resharded || phase->module == reducing_module)
      continue;
    module_backward_remove(phases, phase);
    phase_close(phases, phase, phase->end_ns, phase->end_at);
  }
}

/* Closes what a backward pass left open when it ends. */
static void module_backwards_end(struct sl_phases *phases, uint64_t time_ns, uint64_t at) {
  while (phases->module_backward_count) {
    struct sl_phase *phase = phases->module_backwards[--phases->module_backward_count];
    bool settled = phase->resharded && phase->end_at;
    phase_close(phases, phase, settled ? phase->end_ns : time_ns, settled ? phase->end_at : at);
  }
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

/* The companion numbers its steps; those of the user's are counted, since their names may say anything. */
static int64_t step_number(struct sl_phases *phases, const struct meaning *meaning, uint64_t value) {
  return meaning->by_user ? phases->next_user_step++ : (int64_t)value;
}

/* Steps stand outside of everything: what encloses them, like a range around the whole training, says nothing. */
static struct sl_phase *step_open(struct sl_phases *phases, const struct sl_event *event, uint64_t at, const char *name,
                                  int64_t number) {
  calls_reset(phases);
  struct sl_phase *phase = phase_open(phases, event, at, SL_KIND_step, name, 0, NULL);
  if (phase) {
    phase->step = number;
    phases->step = phase;
  }
  return phase;
}

static void range_close(struct sl_phases *phases, struct sl_phase *phase, uint64_t time_ns, uint64_t at) {
  if (phase->end_at)
    return; /* a module backward that the end of the whole backward has closed */
  if (phase->kind == SL_KIND_backward && phase->module)
    module_backward_remove(phases, phase);
  if (phase == phases->whole_backward) {
    module_backwards_end(phases, time_ns, at);
    phases->whole_backward = NULL;
  }
  if (phase == phases->step) {
    phase_close(phases, phase, time_ns, at); /* the listener may prune it */
    phases->step = NULL;
    return;
  }
  phase_close(phases, phase, time_ns, at);
  fsdp_backward_after(phases, phase, time_ns, at);
}

static int range_pushed(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_push *push = event->payload;
  struct thread_stack *stack = stack_of(phases, event->thread, true);
  if (!stack)
    return -ENOMEM;
  if (stack->depth == MAX_DEPTH) {
    phases->unbalanced++;
    return 0;
  }
  uint32_t slot = stack->depth++;
  stack->domains[slot] = push->domain;
  stack->phases[slot] = NULL;
  if (sl_phases_ignores(phases, push->domain))
    return 0;
  const char *name = sl_log_string(phases->log, push->name);
  struct meaning meaning = meaning_of(phases, event->thread, push->domain, push->category, push->value, name);
  enum sl_phase_point point = meaning.point;
  uint32_t module = meaning.module;
  fsdp_backward_settle(phases, point == SL_POINT_reduce_scatter ? module : 0);
  int r = fsdp_backward_before(phases, event, at, point, module);
  if (r < 0)
    return r;
  stack->depth--; /* the new range is no part of its own surroundings */
  struct sl_phase *parent = sl_phases_current(phases, event->thread);
  stack->depth++;
  if (meaning.kind == SL_KIND_optimizer_step && sl_phase_enclosing(parent, SL_KIND_optimizer_step))
    meaning.kind = SL_KIND_user; /* record_function's and the companion's range of the same step */
  struct sl_phase *phase = meaning.kind == SL_KIND_step
                               ? step_open(phases, event, at, name, step_number(phases, &meaning, push->value))
                               : phase_open(phases, event, at, meaning.kind, name, module, parent);
  if (!phase)
    return -ENOMEM;
  phase->point = point;
  stack->phases[slot] = phase;
  if (meaning.kind == SL_KIND_backward && !module)
    phases->whole_backward = phase;
  if (meaning.kind == SL_KIND_backward && module && module_backward_push(phases, phase) < 0)
    return -ENOMEM;
  phases->listener.opened(phases->listener.context, phase);
  return 0;
}

static void range_popped(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_pop *pop = event->payload;
  struct thread_stack *stack = stack_of(phases, event->thread, false);
  /* The innermost range of this domain; NVTX keeps one stack for each domain. */
  uint32_t slot = stack ? stack->depth : 0;
  while (slot > 0 && stack->domains[slot - 1] != pop->domain)
    slot--;
  if (slot == 0) {
    phases->unbalanced++;
    return;
  }
  struct sl_phase *phase = stack->phases[--slot];
  memmove(&stack->phases[slot], &stack->phases[slot + 1], (stack->depth - slot - 1) * sizeof stack->phases[0]);
  memmove(&stack->domains[slot], &stack->domains[slot + 1], (stack->depth - slot - 1) * sizeof stack->domains[0]);
  stack->depth--;
  if (phase)
    range_close(phases, phase, event->time_ns, at);
}

static int range_started(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_start *start = event->payload;
  struct open_range *range = calloc(1, sizeof *range);
  if (!range)
    return -ENOMEM;
  range->id = start->id;
  SL_HASH_ADD(phases->ranges, id, range);
  if (!range)
    return -ENOMEM;
  const char *name = sl_log_string(phases->log, start->name);
  struct meaning meaning = meaning_of(phases, event->thread, start->domain, start->category, start->value, name);
  struct sl_phase *phase;
  if (meaning.kind == SL_KIND_step) {
    phase = step_open(phases, event, at, name, step_number(phases, &meaning, start->value));
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
  if (!phase || (meaning.kind == SL_KIND_backward && meaning.module && module_backward_push(phases, phase) < 0))
    return -ENOMEM;
  range->phase = phase;
  phases->listener.opened(phases->listener.context, phase);
  return 0;
}

static void range_ended(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  const struct sl_event_range_end *end = event->payload;
  struct open_range *range;
  HASH_FIND(hh, phases->ranges, &end->id, sizeof end->id, range);
  if (!range) {
    phases->unbalanced++;
    return;
  }
  struct sl_phase *phase = range->phase;
  HASH_DEL(phases->ranges, range);
  free(range);
  range_close(phases, phase, event->time_ns, at);
}

int sl_phases_event(struct sl_phases *phases, const struct sl_event *event, uint64_t at) {
  switch (event->type) {
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

static struct sl_phase *phase_open_already(struct sl_phases *phases, const struct sl_event_kept_range *range,
                                           const char *name) {
  for (struct sl_phase *phase = phases->first; phase; phase = phase->next)
    if (!phase->end_at && !phase->kept && !phase->derived && phase->kind != SL_KIND_step &&
        phase->thread == range->thread && phase->start_ns == range->start_ns && strcmp(phase->name, name) == 0)
      return phase;
  return NULL;
}

/* The phase of a range that was opened before or within a gap, and is open after it. */
static int range_reopen(struct sl_phases *phases, const struct sl_event_kept_range *range, uint64_t at) {
  const char *name = sl_log_string(phases->log, range->name);
  const struct sl_event event = {.thread = range->thread, .tid = range->tid, .time_ns = range->start_ns};
  struct sl_phase *phase = NULL;
  bool is_new = false;
  if (range->id || !sl_phases_ignores(phases, range->domain)) {
    phase = phase_open_already(phases, range, name);
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
    phase->kept = true;
  }
  if (range->id) {
    struct open_range *open = calloc(1, sizeof *open);
    if (!open)
      return -ENOMEM;
    open->id = range->id;
    open->phase = phase;
    SL_HASH_ADD(phases->ranges, id, open);
    if (!open)
      return -ENOMEM;
  } else {
    struct thread_stack *stack = stack_of(phases, range->thread, true);
    if (!stack)
      return -ENOMEM;
    if (stack->depth == MAX_DEPTH)
      return 0;
    stack->domains[stack->depth] = range->domain;
    stack->phases[stack->depth++] = phase;
  }
  if (is_new)
    phases->listener.opened(phases->listener.context, phase);
  return 0;
}

int sl_phases_jump(struct sl_phases *phases, const struct sl_event_kept_range *ranges, size_t count, uint64_t time_ns,
                   uint64_t at) {
  struct open_range *range, *next;
  int r = 0;
  module_backwards_end(phases, time_ns, at);
  HASH_ITER(hh, phases->ranges, range, next) {
    HASH_DEL(phases->ranges, range);
    free(range);
  }
  for (struct thread_stack *stack = phases->threads; stack; stack = stack->hh.next)
    stack->depth = 0;
  for (struct sl_phase *phase = phases->first; phase; phase = phase->next)
    phase->kept = false;
  for (size_t i = 0; i < count && r == 0; i++)
    r = range_reopen(phases, &ranges[i], at);
  for (struct sl_phase *phase = phases->first; phase; phase = phase->next)
    if (!phase->end_at && !phase->kept) {
      if (phase->kind == SL_KIND_step) {
        phase->end_ns = time_ns;
        phase->end_at = at;
      } else {
        phase_close(phases, phase, time_ns, at);
      }
    }
  phases->step = NULL;
  if (phases->whole_backward && phases->whole_backward->end_at)
    phases->whole_backward = NULL;
  return r;
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
  return phases->first;
}

void sl_phases_prune(struct sl_phases *phases) {
  /* An open phase needs its parents, and start/end ranges may still point at a closed module backward. */
  struct sl_phase **link = &phases->first;
  phases->last = NULL;
  for (struct sl_phase *phase = phases->first; phase; phase = phase->next)
    phase->kept = false;
  for (struct sl_phase *phase = phases->first; phase; phase = phase->next)
    for (struct sl_phase *p = phase; p && !phase->end_at; p = p->parent)
      p->kept = true;
  for (struct open_range *range = phases->ranges; range; range = range->hh.next)
    range->phase->kept = true;
  for (uint32_t i = 0; i < phases->module_backward_count; i++)
    phases->module_backwards[i]->kept = true; /* also one that ended with its reshard and may still be reduced */
  while (*link) {
    struct sl_phase *phase = *link;
    if (phase->kept) {
      if (phase->parent && !phase->parent->kept)
        phase->parent = NULL; /* closed long ago; its row is written */
      phases->last = phase;
      link = &phase->next;
    } else {
      *link = phase->next;
      free(phase);
    }
  }
}

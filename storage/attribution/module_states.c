/*
 * The trackers hook into modules; here the same instants are found in the ranges of FSDP and of the companion. Each
 * case below is a place at which one of their hooks runs.
 */
#include "module_states.h"

#include "plugin/format/events.h"
#include "storage/grow.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARED_BY = 64 }; /* modules of one FSDP unit */

struct state_count { /* how often a module reached a state in this step */
  uint64_t key;      /* module << 8 | state */
  uint32_t count;
  size_t last_item;
  UT_hash_handle hh;
};

struct window { /* an open Peak Backward of an FSDP unit */
  uint32_t module;
  const struct sl_phase *until; /* ends with this pre-backward; NULL: does not */
  bool done;                    /* its post-backward has run: ends with what comes next */
};

struct cast { /* of an input of an FSDP unit, to the type that it computes in; its gradient is yet to come */
  uint32_t module;
  uint64_t bytes;
};

struct sl_module_states {
  struct sl_phases *phases;
  struct sl_states_sink sink;
  struct state_count *counts;
  struct window *windows;
  size_t window_count, done_count;
  struct cast *casts; /* of this step */
  size_t cast_count;
  bool in_step, saw_fsdp;
  int r; /* -ENOMEM: items are missing */
};

const char *sl_state_name(enum sl_state state) {
  static const char *const words[] = {
#define STATE(name, word) word,
#include "states.def"
#undef STATE
  };
  return words[state];
}

struct sl_module_states *sl_module_states_new(struct sl_phases *phases, const struct sl_states_sink *sink) {
  struct sl_module_states *states = calloc(1, sizeof *states);
  if (states) {
    states->phases = phases;
    states->sink = *sink;
  }
  return states;
}

struct sl_module_states *sl_module_states_free(struct sl_module_states *states) {
  if (states) {
    SL_HASH_FREE(states->counts);
    free(states->windows);
    free(states->casts);
    free(states);
  }
  return NULL;
}

void sl_module_states_step_begins(struct sl_module_states *states) {
  states->in_step = true;
}

void sl_module_states_step_ended(struct sl_module_states *states) {
  SL_HASH_FREE(states->counts);
  states->window_count = states->done_count = states->cast_count = 0; /* the sweep closes what is open */
  states->in_step = states->saw_fsdp = false;
}

bool sl_module_states_saw_fsdp(const struct sl_module_states *states) {
  return states->saw_fsdp;
}

/* ---- items ---- */

static struct state_count *count_of(struct sl_module_states *states, enum sl_state state, uint32_t module) {
  uint64_t key = (uint64_t)module << 8 | (uint64_t)state;
  struct state_count *entry;
  SL_HASH_FIND_OR_ADD(states->counts, key, key, entry);
  if (!entry)
    states->r = -ENOMEM;
  return entry;
}

static size_t item_add(struct sl_module_states *states, const struct sl_item *item) {
  const size_t index = states->sink.add(states->sink.context, item);
  if (index == SIZE_MAX)
    states->r = -ENOMEM;
  return index;
}

static uint32_t times_reached(struct sl_module_states *states, enum sl_state state, uint32_t module) {
  const struct state_count *entry = count_of(states, state, module);
  return entry ? entry->count : 0;
}

/* A snapshot, or the beginning of a window; each counts the calls of its own state. */
static void state_add(struct sl_module_states *states, enum sl_item_type type, enum sl_state state, uint32_t module,
                      bool replaces_last) {
  struct state_count *entry = module && states->in_step ? count_of(states, state, module) : NULL;
  if (!entry)
    return;
  if (replaces_last && entry->count) {
    states->sink.withdraw(states->sink.context, entry->last_item);
    entry->count--;
  }
  struct sl_item item = {.type = type, .state = state, .module = module, .call_index = entry->count++};
  entry->last_item = item_add(states, &item);
}

static void snapshot(struct sl_module_states *states, enum sl_state state, uint32_t module) {
  state_add(states, SL_ITEM_snapshot, state, module, false);
}

static void snapshot_again(struct sl_module_states *states, enum sl_state state, uint32_t module) {
  state_add(states, SL_ITEM_snapshot, state, module, true);
}

static void window_begin(struct sl_module_states *states, enum sl_state state, uint32_t module) {
  state_add(states, SL_ITEM_window_open, state, module, false);
}

static void window_end(struct sl_module_states *states, enum sl_state state, uint32_t module) {
  struct sl_item item = {.type = SL_ITEM_window_close, .state = state, .module = module};
  if (module && states->in_step)
    item_add(states, &item);
}

static void recognise(struct sl_module_states *states, uint32_t module, int category) {
  struct sl_item item = {.type = SL_ITEM_recognise, .module = module, .category = category};
  if (module && states->in_step)
    item_add(states, &item);
}

/* ---- which modules ---- */

static bool is_fsdp(const struct sl_module_states *states, uint32_t module) {
  const struct sl_module_info *info = sl_phases_module(states->phases, module);
  return info && (info->flags & SL_MODULE_FSDP);
}

bool sl_unit_called_again(const struct sl_phases *phases, struct sl_phase *phase) {
  while ((phase = sl_phase_enclosing(phase, SL_KIND_recompute))) {
    const struct sl_module_info *module = sl_phases_module(phases, phase->module);
    if (module && (module->flags & SL_MODULE_FSDP) &&
        strcmp(phase->name, *module->fqn ? module->fqn : module->class_name) == 0)
      return true;
    phase = phase->parent;
  }
  return false;
}

static bool in_backward(const struct sl_phase *phase) {
  return sl_phase_enclosing(phase->parent, SL_KIND_backward) != NULL;
}

static bool in_call_of(const struct sl_phase *phase, enum sl_kind kind, uint32_t module) {
  for (phase = phase->parent; phase; phase = phase->parent)
    if (phase->kind == kind && phase->module == module)
      return true;
  return false;
}

/*
 * Of the modules that share a unit the one whose call of this kind encloses FSDP's range; 0: none does, as when another
 * tool has moved FSDP's hooks out of the companion's range.
 */
static uint32_t called_member(const struct sl_module_states *states, const struct sl_phase *phase, enum sl_kind kind) {
  uint32_t members[MAX_SHARED_BY], count = sl_phases_named(states->phases, phase, members, MAX_SHARED_BY);
  for (uint32_t i = 0; i < count; i++)
    if (in_call_of(phase, kind, members[i]))
      return members[i];
  return 0;
}

/* ---- windows of backward ---- */

static void backward_window_close(struct sl_module_states *states, size_t index) {
  window_end(states, SL_STATE_peak_backward, states->windows[index].module);
  states->done_count -= states->windows[index].done;
  states->windows[index] = states->windows[--states->window_count];
}

static void backward_windows_close(struct sl_module_states *states, bool all) {
  for (size_t i = states->window_count; i-- > 0;)
    if (all || states->windows[i].done)
      backward_window_close(states, i);
}

static void backward_window_open(struct sl_module_states *states, uint32_t module, const struct sl_phase *until) {
  struct window *added = SL_LIST_ADD(states->windows, states->window_count);
  if (!added) {
    states->r = -ENOMEM;
    return;
  }
  *added = (struct window){.module = module, .until = until};
}

/*
 * Each call of pre-backward restarts the peaks of all modules of the unit, but only a module that backward is in gets
 * higher: the one whose output brought the gradients (the last module at the first call), and the one after it, whose
 * inputs these outputs are, until the call is over.
 */
static void pre_backward_begins(struct sl_module_states *states, const struct sl_phase *phase) {
  uint32_t members[MAX_SHARED_BY], count = sl_phases_named(states->phases, phase, members, MAX_SHARED_BY);
  uint32_t call = count ? times_reached(states, SL_STATE_before_pre_backward, members[0]) : 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t own = count - 1 - call % count;
    for (size_t w = states->window_count; w-- > 0;)
      if (states->windows[w].module == members[i])
        backward_window_close(states, w);
    snapshot(states, SL_STATE_before_pre_backward, members[i]);
    window_begin(states, SL_STATE_peak_backward, members[i]);
    if (i == own || i == own + 1)
      backward_window_open(states, members[i], i == own ? NULL : phase);
    else
      window_end(states, SL_STATE_peak_backward, members[i]);
  }
}

static void pre_backward_ends(struct sl_module_states *states, const struct sl_phase *phase) {
  uint32_t members[MAX_SHARED_BY], count = sl_phases_named(states->phases, phase, members, MAX_SHARED_BY);
  for (uint32_t i = 0; i < count; i++)
    snapshot(states, SL_STATE_after_pre_backward, members[i]);
  for (size_t w = states->window_count; w-- > 0;)
    if (states->windows[w].done || states->windows[w].until == phase)
      backward_window_close(states, w);
}

static void post_backward_begins(struct sl_module_states *states, const struct sl_phase *phase) {
  uint32_t members[MAX_SHARED_BY], count = sl_phases_named(states->phases, phase, members, MAX_SHARED_BY);
  backward_windows_close(states, false);
  for (uint32_t i = 0; i < count; i++)
    snapshot(states, SL_STATE_before_post_backward, members[i]);
}

static void post_backward_ends(struct sl_module_states *states, const struct sl_phase *phase) {
  uint32_t members[MAX_SHARED_BY], count = sl_phases_named(states->phases, phase, members, MAX_SHARED_BY);
  for (uint32_t i = 0; i < count; i++) {
    state_add(states, SL_ITEM_snapshot, SL_STATE_after_post_backward, members[i],
              phase->point == SL_POINT_reduce_scatter);
    for (size_t w = 0; w < states->window_count; w++)
      if (states->windows[w].module == members[i] && !states->windows[w].done) {
        states->windows[w].done = true;
        states->done_count++;
      }
  }
}

/* ---- inputs that FSDP casts ---- */

static bool is_cast(const struct sl_phase *phase) {
  return phase && phase->kind == SL_KIND_input && strcmp(phase->name, "FSDP::cast_forward_inputs") == 0;
}

/* FSDP casts before its own ranges of the call, which tell the unit; but the companion's is around it. */
static void cast_add(struct sl_module_states *states, const struct sl_phase *phase, uint64_t bytes) {
  while (phase && phase->kind != SL_KIND_forward && phase->kind != SL_KIND_recompute)
    phase = phase->parent;
  if (!phase || !is_fsdp(states, phase->module) || !states->in_step)
    return;
  struct cast *added = SL_LIST_ADD(states->casts, states->cast_count);
  if (!added) {
    states->r = -ENOMEM;
    return;
  }
  *added = (struct cast){.module = phase->module, .bytes = bytes};
}

/* The gradient of a cast has the type of before: a float32 of a bfloat16, twice its bytes; or the other way round. */
static bool cast_ends(struct sl_module_states *states, uint32_t module, uint64_t bytes) {
  for (size_t i = states->cast_count; i-- > 0;) {
    const struct cast *cast = &states->casts[i];
    if (cast->module == module && (cast->bytes == 2 * bytes || 2 * cast->bytes == bytes)) {
      states->casts[i] = states->casts[--states->cast_count];
      return true;
    }
  }
  return false;
}

int sl_module_states_allocated(struct sl_module_states *states, const struct sl_phase *phase, uint64_t bytes) {
  if (is_cast(phase))
    cast_add(states, phase, bytes);
  if (!states->done_count)
    return states->r;
  for (; phase; phase = phase->parent)
    if (phase->point == SL_POINT_pre_backward || phase->point == SL_POINT_accumulate ||
        phase->point == SL_POINT_post_backward_reshard || phase->point == SL_POINT_reduce_scatter)
      return states->r;
  for (size_t w = states->window_count; w-- > 0;)
    if (states->windows[w].done && !cast_ends(states, states->windows[w].module, bytes))
      backward_window_close(states, w);
  return states->r;
}

/* ---- phases ---- */

static void forward_begins(struct sl_module_states *states, uint32_t module) {
  snapshot(states, SL_STATE_before_pre_forward, module);
  window_begin(states, SL_STATE_peak_forward, module);
}

static void pre_forward_begins(struct sl_module_states *states, const struct sl_phase *phase) {
  /*
   * The companion's forward range encloses FSDP's own ranges, unless another tool has moved FSDP's hooks outside of it.
   * Then FSDP's ranges mark the beginning and the end.
   */
  if (!in_backward(phase) && !called_member(states, phase, SL_KIND_forward))
    forward_begins(states, phase->module);
}

static void pre_forward_ends(struct sl_module_states *states, const struct sl_phase *phase) {
  bool again = in_backward(phase);
  recognise(states, phase->module, SL_CATEGORY_unsharded_param);
  uint32_t module = called_member(states, phase, again ? SL_KIND_recompute : SL_KIND_forward);
  if (again && module)
    snapshot_again(states, SL_STATE_pre_forward_ac, module);
  else if (!again)
    snapshot(states, SL_STATE_after_pre_forward, module ? module : phase->module);
}

static void post_forward_begins(struct sl_module_states *states, const struct sl_phase *phase) {
  if (in_backward(phase))
    return; /* activation checkpointing calls it there, as a no-op */
  uint32_t module = called_member(states, phase, SL_KIND_forward);
  snapshot(states, SL_STATE_before_post_forward, module ? module : phase->module);
  window_end(states, SL_STATE_peak_forward, module ? module : phase->module);
}

static void post_forward_ends(struct sl_module_states *states, const struct sl_phase *phase) {
  if (!in_backward(phase) && !called_member(states, phase, SL_KIND_forward))
    snapshot_again(states, SL_STATE_after_post_forward, phase->module);
}

/*
 * FSDPMemTracker knows the buffers of these two operations by them, the gathers' only in pre-forward, with the
 * prefetches that follow it, and in pre-backward: so not those of an explicit prefetch in backward.
 */
static void collective_begins(struct sl_module_states *states, const struct sl_phase *phase) {
  const struct sl_phase *buffers;
  if (strcmp(phase->name, "nccl:_all_gather_base") == 0) {
    bool known = !in_backward(phase) || sl_phase_enclosing_point(phase, SL_POINT_pre_backward);
    if ((buffers = sl_phase_enclosing_point(phase, SL_POINT_all_gather)) && known)
      recognise(states, buffers->module, SL_CATEGORY_all_gather);
  } else if (strcmp(phase->name, "nccl:_reduce_scatter_base") == 0) {
    if ((buffers = sl_phase_enclosing_point(phase, SL_POINT_reduce_scatter)))
      recognise(states, buffers->module, SL_CATEGORY_reduce_scatter);
  }
}

/* Explicit prefetches in forward come after FSDP::pre_forward, but within what the tracker takes for pre-forward. */
static void prefetch_ends(struct sl_module_states *states, const struct sl_phase *phase) {
  const struct sl_phase *forward = sl_phase_enclosing(phase->parent, SL_KIND_forward);
  if (forward && !in_backward(phase) && is_fsdp(states, forward->module) &&
      !sl_phase_enclosing_point(phase, SL_POINT_pre_forward) &&
      times_reached(states, SL_STATE_after_pre_forward, forward->module) > forward->call_index)
    snapshot_again(states, SL_STATE_after_pre_forward, forward->module);
}

static void phase_opened(struct sl_module_states *states, const struct sl_phase *phase) {
  bool fsdp = is_fsdp(states, phase->module);
  switch (phase->point) {
  case SL_POINT_pre_forward:
    states->saw_fsdp = true;
    pre_forward_begins(states, phase);
    return;
  case SL_POINT_post_forward: post_forward_begins(states, phase); return;
  case SL_POINT_pre_backward: pre_backward_begins(states, phase); return;
  case SL_POINT_accumulate: post_backward_begins(states, phase); return;
  case SL_POINT_root_callback: backward_windows_close(states, true); return;
  default: break;
  }
  switch (phase->kind) {
  case SL_KIND_forward:
    if (!fsdp) {
      snapshot(states, SL_STATE_plain_pre_forward, phase->module);
      window_begin(states, SL_STATE_plain_peak_forward, phase->module);
    } else if (times_reached(states, SL_STATE_after_pre_forward, phase->module) <= phase->call_index) {
      forward_begins(states, phase->module);
    }
    return;
  case SL_KIND_recompute:
    if (!fsdp)
      snapshot(states, SL_STATE_plain_pre_forward_ac, phase->module);
    else if (sl_unit_called_again(states->phases, (struct sl_phase *)phase))
      snapshot(states, SL_STATE_pre_forward_ac, phase->module);
    return;
  case SL_KIND_backward:
    if (!fsdp) {
      snapshot(states, SL_STATE_plain_pre_backward, phase->module);
      window_begin(states, SL_STATE_plain_peak_backward, phase->module);
    } else if (!phase->derived) { /* FSDP1, which has no ranges for this */
      window_begin(states, SL_STATE_peak_backward, phase->module);
    }
    return;
  case SL_KIND_user: collective_begins(states, phase); return;
  default: return;
  }
}

static void phase_closed(struct sl_module_states *states, const struct sl_phase *phase) {
  bool fsdp = is_fsdp(states, phase->module);
  switch (phase->point) {
  case SL_POINT_pre_forward: pre_forward_ends(states, phase); return;
  case SL_POINT_post_forward: post_forward_ends(states, phase); return;
  case SL_POINT_pre_backward: pre_backward_ends(states, phase); return;
  case SL_POINT_reduce_scatter:
  case SL_POINT_post_backward_reshard: post_backward_ends(states, phase); return;
  default: break;
  }
  switch (phase->kind) {
  case SL_KIND_prefetch: prefetch_ends(states, phase); return;
  case SL_KIND_forward:
    window_end(states, fsdp ? SL_STATE_peak_forward : SL_STATE_plain_peak_forward, phase->module);
    snapshot(states, fsdp ? SL_STATE_after_post_forward : SL_STATE_plain_post_forward, phase->module);
    return;
  case SL_KIND_recompute:
    if (!fsdp)
      snapshot(states, SL_STATE_plain_post_forward_ac, phase->module);
    else if (sl_unit_called_again(states->phases, (struct sl_phase *)phase))
      snapshot(states, SL_STATE_post_forward_ac, phase->module);
    return;
  case SL_KIND_backward:
    if (!phase->module) {
      backward_windows_close(states, true);
    } else if (!fsdp) {
      snapshot(states, SL_STATE_plain_post_backward, phase->module);
      window_end(states, SL_STATE_plain_peak_backward, phase->module);
    } else if (!phase->derived) {
      window_end(states, SL_STATE_peak_backward, phase->module);
    }
    return;
  default: return;
  }
}

int sl_module_states_opened(struct sl_module_states *states, const struct sl_phase *phase) {
  phase_opened(states, phase);
  return states->r;
}

int sl_module_states_closed(struct sl_module_states *states, const struct sl_phase *phase) {
  phase_closed(states, phase);
  return states->r;
}

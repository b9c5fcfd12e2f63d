/*
 * Ranges become phases: which one is each thread in, whom does it serve, in which step?
 *
 * Push/pop ranges nest per thread. Start/end ranges (steps, module backward) do not. Backward runs on autograd's own
 * threads, which have no ranges of their own: they take the innermost module backward that is open, else the whole
 * backward of the calling thread, else the step.
 * For FSDP units the module's backward is made here, from FSDP's own ranges: from pre_backward to its last
 * post_backward range.
 */
#ifndef SHARDLEDGER_PHASES_H
#define SHARDLEDGER_PHASES_H

#include "module_table.h"
#include "phase.h"
#include "storage/error.h"
#include "storage/log/log_reader.h"
#include "storage/rules/user_rules.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * What the owner of a sl_phases hears. Called in the order of events; phase stays valid until the first sl_phases_prune
 * after it was closed, which may be called from within closed. 0, or a negative errno: it hears nothing more.
 */
struct sl_phase_listener {
  void *context;
  int (*opened)(void *context, struct sl_phase *phase);
  int (*closed)(void *context, struct sl_phase *phase);
};

struct sl_phases;

/* log gives the strings and must outlive the phases. NULL when memory runs out. */
struct sl_phases *sl_phases_new(const struct sl_log *log, const struct sl_phase_listener *listener);
struct sl_phases *sl_phases_free(struct sl_phases *phases); /* returns NULL */

/*
 * Names mean what the user says, before the built-in table. To be called before the first event; rules stay the
 * caller's and must outlive the phases. A range that means a step opens and closes one, as long as no other kind of
 * step (the companion's, or the user's) came first. 0 or -ENOMEM.
 */
int sl_phases_use_rules(struct sl_phases *phases, const struct sl_user_rules *rules);

/*
 * Takes a module, nvtx_domain, range or gap event (others are ignored) at position at (1, 2, …). 0, -ENOMEM, or the
 * listener's failure.
 */
int sl_phases_event(struct sl_phases *phases, const struct sl_event *event, uint64_t at);

/* The phase that something on this thread belongs to now; NULL outside of everything. */
struct sl_phase *sl_phases_current(struct sl_phases *phases, uint32_t thread);

/*
 * The same where the thread is not known: of the only one that has a range open, not counting who waits for backward to
 * end. false: there are several, so it can't be told.
 */
bool sl_phases_current_of_any(struct sl_phases *phases, struct sl_phase **out);

/*
 * All modules that FSDP names in a range's name, since modules may share a unit: the phase's own first. Returns how
 * many, at most capacity.
 */
uint32_t sl_phases_named(const struct sl_phases *phases, const struct sl_phase *phase, uint32_t *modules,
                         uint32_t capacity);

/* Modules by index 0 … count - 1. */
const struct sl_module_info *sl_phases_modules(const struct sl_phases *phases, uint32_t *count);
const struct sl_module_info *sl_phases_module(const struct sl_phases *phases, uint32_t id); /* NULL: unknown */

/* How many modules are not there, as another one got their id. */
uint64_t sl_phases_modules_repeated(const struct sl_phases *phases);

/* Whether a module (0: none) belongs to a model without a backward, beside one that is trained: a reference, a copy. */
bool sl_phases_is_aside(const struct sl_phases *phases, uint32_t module);

/* The module that holds a tensor of this full name, in the tree of a module. NULL: none. */
const struct sl_module_info *sl_phases_module_holding(const struct sl_phases *phases, uint32_t module,
                                                      const char *tensor_name);

/* Ranges of this NVTX domain are no phases: NCCL's are calls. */
bool sl_phases_ignores(const struct sl_phases *phases, uint32_t domain);

/* The name of an NVTX domain, of the log; NULL: the default one, or not known. */
const char *sl_phases_domain(const struct sl_phases *phases, uint32_t domain);

/* Numbers go up in the order in which steps begin. */
int64_t sl_phases_step(const struct sl_phases *phases); /* -1 outside steps */

/* Range ends without a start, and ranges closed by an outer pop: how often the log was unbalanced. */
uint64_t sl_phases_unbalanced(const struct sl_phases *phases);

/* Phases that are open, or closed and not pruned: the oldest, whence ->next leads on, and the latest. NULL: none. */
struct sl_phase *sl_phases_list(const struct sl_phases *phases);
struct sl_phase *sl_phases_latest(struct sl_phases *phases);

/* Those that are closed and not pruned, by id; the array is valid until the next call. 0 or -ENOMEM. */
int sl_phases_closed(struct sl_phases *phases, struct sl_phase ***out, size_t *count);

/*
 * From here on the log goes on after a gap that began at time_ns: these ranges are open, those of a thread from the
 * outermost on, and no others. Steps that the gap cuts are none. As sl_phases_event.
 */
int sl_phases_jump(struct sl_phases *phases, const struct sl_event_kept_range *ranges, size_t count, uint64_t time_ns,
                   uint64_t at);

/* Frees all closed phases but those around open ones. The owner holds none of them any more (phase_list.h). */
void sl_phases_prune(struct sl_phases *phases);

#endif

/*
 * When modules reach the states at which PyTorch's memory trackers take their snapshots, and from when to when the
 * trackers look for a module's highest point: phases become items.
 *
 * A tracker's Peak Forward begins with the forward and ends with it. Its Peak Backward begins when a unit's
 * pre-backward does; it ends when the gradients of the unit's inputs have arrived where they were made: after the
 * unit's post-backward, after the gradients of what FSDP cast of them, and after the pre-backward of the unit before
 * it, which hooks onto the same tensor earlier. Units whose inputs need no gradients, such as most roots, are left when
 * the graph is done: before FSDP's root callback, which then runs their post-backward.
 */
#ifndef SHARDLEDGER_MODULE_STATES_H
#define SHARDLEDGER_MODULE_STATES_H

#include "item.h"
#include "storage/phases/phases.h"

/* The trackers' own word for a state. */
const char *sl_state_name(enum sl_state state);

struct sl_states_sink { /* takes the items */
  void *context;
  size_t (*add)(void *context, const struct sl_item *item); /* its index, for withdraw; SIZE_MAX: no memory */
  void (*withdraw)(void *context, size_t index);
};

struct sl_module_states;

/* phases stay the caller's and must outlive the states. NULL: no memory. */
struct sl_module_states *sl_module_states_new(struct sl_phases *phases, const struct sl_states_sink *sink);
struct sl_module_states *sl_module_states_free(struct sl_module_states *states); /* returns NULL */

/* States count from here, within a step; outside of steps none are taken. */
void sl_module_states_step_begins(struct sl_module_states *states);
void sl_module_states_step_ended(struct sl_module_states *states);

/* 0 or -ENOMEM: items are missing. */
int sl_module_states_opened(struct sl_module_states *states, const struct sl_phase *phase);
int sl_module_states_closed(struct sl_module_states *states, const struct sl_phase *phase);

/*
 * To be called before the item of an allocation that is made in the phase (NULL: outside of all), of as many requested
 * bytes. As above.
 */
int sl_module_states_allocated(struct sl_module_states *states, const struct sl_phase *phase, uint64_t bytes);

/* FSDP2 has shown itself since the last step ended: the tracker that can follow the job is FSDPMemTracker. */
bool sl_module_states_saw_fsdp(const struct sl_module_states *states);

/* The phase lies in a call of an FSDP unit itself by activation checkpointing, not only of what a wrapper wraps. */
bool sl_unit_called_again(const struct sl_phases *phases, struct sl_phase *phase);

#endif

/*
 * The module backwards that are open: the one that opened last, by module, and those that ended with their reshard,
 * unless their reduce follows.
 */
#ifndef SHARDLEDGER_MODULE_BACKWARDS_H
#define SHARDLEDGER_MODULE_BACKWARDS_H

#include "phase.h"

/* Units between their reshard and their reduce: a job has one for each of autograd's threads. */
enum { SL_RESHARDED_MAX = 16 };

struct sl_module_backwards { /* zero: none */
  struct sl_module_backward *newest;
  struct sl_backwards_of_module *modules;
  struct sl_phase *resharded[SL_RESHARDED_MAX]; /* the one that was first comes first */
  size_t resharded_count;
};

int sl_module_backwards_add(struct sl_module_backwards *backwards, struct sl_phase *phase); /* 0 or -ENOMEM */

/* The phase ends. Nothing happens where it is no module backward. */
void sl_module_backwards_forget(struct sl_module_backwards *backwards, struct sl_phase *phase);

/* The one that opened last: of all, of those that no reshard ended, of a module. NULL: none. */
struct sl_phase *sl_module_backwards_newest(const struct sl_module_backwards *backwards);
struct sl_phase *sl_module_backwards_innermost(const struct sl_module_backwards *backwards);
struct sl_phase *sl_module_backwards_of(const struct sl_module_backwards *backwards, uint32_t module);

/* Its reshard has ended at this time and position; there must be room. And its reduce follows. */
void sl_module_backwards_reshard(struct sl_module_backwards *backwards, struct sl_phase *phase, uint64_t time_ns,
                                 uint64_t at);
void sl_module_backwards_reduce(struct sl_module_backwards *backwards, struct sl_phase *phase);

#endif

/*
 * Training comes to rest: after some steps the allocator is, where a step begins, as it was where an earlier one began,
 * and what follows is what followed then. Such steps need not be played.
 */
#ifndef SHARDLEDGER_CYCLES_H
#define SHARDLEDGER_CYCLES_H

#include "storage/predict/tape/tape.h"

struct sl_cycles;

/* NULL: no memory. Free it with sl_cycles_free, which returns NULL. */
struct sl_cycles *sl_cycles_new(const struct sl_tape *tape);
struct sl_cycles *sl_cycles_free(struct sl_cycles *cycles);

/* Whether a period is all of another one, and nothing else is known of it: only these can be left out. */
bool sl_cycles_is_pure(const struct sl_tape *tape, size_t period);

/*
 * A pure period begins, with everything as the signature says. How many from it on need not be played, since they are
 * as those `*length` before them, again and again. 0: it has to be.
 */
size_t sl_cycles_skip(struct sl_cycles *cycles, size_t period, uint64_t signature, size_t *length);

#endif

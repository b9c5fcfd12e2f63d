/*
 * Whose the gradients are that wait for the optimizer: recorded in some steps only. In another step they are in the
 * same order, where they are as many and as large one by one; else none of that step gets a name.
 */
#ifndef SHARDLEDGER_GRADIENT_NAMES_H
#define SHARDLEDGER_GRADIENT_NAMES_H

#include "tape.h"

/* Sets sl_tape_allocation.parameter. 0 or -ENOMEM. */
int sl_gradient_names(struct sl_tape *tape);

#endif

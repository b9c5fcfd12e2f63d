/*
 * Another optimizer: its states and temporaries take the place of those that were recorded. What each makes in a step,
 * of one group of parameters of one type, in their order (PyTorch 2.4 to 2.11):
 *
 *              states of a parameter, when it has its first step    temporaries in every step
 *   foreach    exp_avg, exp_avg_sq                                   one a parameter; then freed, the last first
 *   fused      step (4 bytes), exp_avg, exp_avg_sq                   none
 *   forloop    exp_avg, exp_avg_sq                                   two a parameter; the first is freed at once, the
 *                                                                    second when the next one's first was
 *   sgd        momentum_buffer                                       none
 *   host       none                                                  none
 *
 * The first three are AdamW, without amsgrad and capturable; sgd has momentum, and no weight decay; host is any of them
 * on copies of the parameters in the host's memory, one parameter after the other: copy.grad = p.grad.cpu(), its step,
 * p.copy_(copy). Only a recorded optimizer that is one of the others to the byte and in this order is changed.
 */
#ifndef SHARDLEDGER_CHANGE_OPTIMIZER_H
#define SHARDLEDGER_CHANGE_OPTIMIZER_H

#include "optimizer_record.h"

/*
 * Changes the tape, in steps first to last (INT64_MAX: to the end). 0; -ENOTSUP, with the reason as the rest of a
 * sentence in error; or -ENOMEM.
 */
int sl_change_optimizer(struct sl_tape *tape, enum sl_optimizer optimizer, int64_t first, int64_t last,
                        struct sl_error *error);

#endif

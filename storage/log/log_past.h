/*
 * Puts what was recorded afterwards in its place. Where PyTorch's memory history stands in for the bridge, a step's
 * allocator events are recorded together at its end, each with the time at which it happened:
 *
 *   recorded:  forward ───── backward ───── optimizer ─ a1 a2 a3 a4 a5 ─ told ─ end of the step
 *   given:     forward a1 a2 backward a3 a4 optimizer a5 ─ end of the step
 *
 * So events wait until the history up to their time has been told, which is a step; where it takes 64 MiB of them, no
 * longer. All other logs pass through as they are.
 */
#ifndef SHARDLEDGER_LOG_PAST_H
#define SHARDLEDGER_LOG_PAST_H

#include "log_reader.h"

struct sl_log_past;

/* log must outlive it. follows: the log may grow, so that its end tells nothing but where process_end stands. NULL: no
 * memory. */
struct sl_log_past *sl_log_past_new(struct sl_log *log, bool follows);
struct sl_log_past *sl_log_past_free(struct sl_log_past *past); /* returns NULL */

/* As sl_log_next, whose place it takes: 1 with the next event, 0 at the end, or a negative errno. */
int sl_log_past_next(struct sl_log_past *past, struct sl_event *event, struct sl_error *error);

#endif

/*
 * How many collectives each communicator has run, and how many messages each pair of ranks has exchanged, as
 * storage/collectives numbers them: so numbers go on behind a part of the log that was dropped, and agree between
 * ranks.
 */
#ifndef SHARDLEDGER_CALL_COUNTS_H
#define SHARDLEDGER_CALL_COUNTS_H

#include "plugin/format/events.h"
#include "storage/log/log_reader.h"

#include <stdbool.h>

struct sl_call_counts;

struct sl_call_counts *sl_call_counts_new(const struct sl_log *log);       /* NULL: no memory */
struct sl_call_counts *sl_call_counts_free(struct sl_call_counts *counts); /* returns NULL */

/*
 * Takes NCCL's domain, schemas, ranges, payloads and calls; others are ignored. *keep: what the event tells of a
 * communicator's making must go on. 0 or -ENOMEM.
 */
int sl_call_counts_event(struct sl_call_counts *counts, const struct sl_event *event, bool *keep);

/* Calls back with one kept_calls event each; what it returns below 0 ends that, and is returned. */
int sl_call_counts_each(const struct sl_call_counts *counts,
                        int (*each)(void *context, const struct sl_event_kept_calls *calls), void *context);

#endif

/*
 * Definitions from before the log opened: a process that only gets ready leaves nothing behind. For one thread at a
 * time.
 */
#ifndef SHARDLEDGER_PENDING_DEFINITIONS_H
#define SHARDLEDGER_PENDING_DEFINITIONS_H

#include "plugin/format/events.h"

#include <stdbool.h>
#include <stddef.h>

/* Keeps one; both parts are copied. False when there is no room. */
bool sl_pending_add(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes);

/* Hands each one to define, in order, and forgets them. */
void sl_pending_replay(void (*define)(enum sl_event_type type, const void *fields, size_t bytes, const void *tail,
                                      size_t tail_bytes));

#endif

/* Names and other definitions: a chain of their own, under the log's lock. The public part is in event_log.h. */
#ifndef SHARDLEDGER_LOG_DEFINITIONS_H
#define SHARDLEDGER_LOG_DEFINITIONS_H

#include "plugin/format/events.h"
#include "segment_pool.h"

#include <stddef.h>
#include <stdint.h>

/* All of these run under the lock. */
void sl_define_locked(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes);
uint32_t sl_name_locked(const char *text, size_t length);
void sl_info_locked(const char *key, const char *value);

/* A lost definition would leave events without meaning, so a system call is the lesser evil. */
struct sl_segment *sl_segment_for_definitions(void);

#endif

/* What the log says of the process that it is of: host, pid, rank, run, and the settings that a reader needs. */
#ifndef SHARDLEDGER_PROCESS_DESCRIPTION_H
#define SHARDLEDGER_PROCESS_DESCRIPTION_H

#include <stdint.h>

/*
 * Calls info for each fact that is known, in one order. start_ns: when the process began, as far as the log knows;
 * keep_last_bytes: the limit of a log with keep-last, which `shardledger trim` has to know; 0: it is a log without.
 */
void sl_process_describe(uint64_t start_ns, uint64_t keep_last_bytes, void (*info)(const char *key, const char *value));

#endif

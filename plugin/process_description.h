/* What the log says of the process that it is of: host, pid, rank and the settings that a reader needs. */
#ifndef SHARDLEDGER_PROCESS_DESCRIPTION_H
#define SHARDLEDGER_PROCESS_DESCRIPTION_H

#include <stdint.h>

/* Calls info for each fact that is known, in one order. start_ns: when the process began, as far as the log knows. */
void sl_process_describe(uint64_t start_ns, void (*info)(const char *key, const char *value));

#endif

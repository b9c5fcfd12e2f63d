/* What a range means: its kind, and the module that it serves. */
#ifndef SHARDLEDGER_RANGE_MEANING_H
#define SHARDLEDGER_RANGE_MEANING_H

#include "open_phases.h"

/*
 * What the companion says of its own ranges is not up to rules; everything else goes by its name. What it means depends
 * on the phases that are open, and says which model runs.
 */
struct meaning sl_range_meaning(struct sl_phases *phases, uint32_t thread, uint16_t domain, uint16_t category,
                                uint64_t value, const char *name);

#endif

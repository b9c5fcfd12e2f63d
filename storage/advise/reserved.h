/* What a rank's recorded segments tell of a limit: since when it may have held, and what was given back for it. */
#ifndef SHARDLEDGER_RESERVED_H
#define SHARDLEDGER_RESERVED_H

#include "storage/predict/replay/replay.h"
#include "storage/predict/tape/tape.h"

struct sl_reserved {
  uint64_t most, from; /* since that event; 0: the first */
};

/* What was reserved at the most since the last time that it was more than a limit. */
struct sl_reserved sl_reserved_below(const struct sl_tape *tape, uint64_t limit);

/*
 * A program's empty_cache and what the allocator gives back for a request that has no room look alike where a segment
 * is taken next. Under a limit that holds from an event on, they do not: with what is taken, it had been passed. out:
 * of sl_replay.sweeps, for each of the tape's segments.
 */
void sl_sweeps_under(const struct sl_tape *tape, const uint8_t *sweeps, uint64_t limit, uint64_t from, uint8_t *out);

#endif

/* When operators were last seen to use a tape's allocations: in the steps in which that was recorded, else not known.
 */
#ifndef SHARDLEDGER_TAPE_USES_H
#define SHARDLEDGER_TAPE_USES_H

#include "tape.h"

struct sl_tape_use {            /* when the last operator ended; 0: not known */
  uint64_t last_ns, forward_ns; /* of all, and of those before its step's backward */
};

/* Of each recorded allocation; free it with free. 0 or a negative errno, with the sentence in error. */
int sl_tape_uses(struct sl_db *db, const struct sl_tape *tape, struct sl_tape_use **out, struct sl_error *error);

#endif

/* Where the tape of a run that ran out of memory ends, and how it goes on: what the kinds of continuation.h share. */
#ifndef SHARDLEDGER_CONTINUATION_CUT_H
#define SHARDLEDGER_CONTINUATION_CUT_H

#include "continuation.h"

struct sl_cut {    /* the end of a tape, which moves on with each event that is put behind it */
  uint64_t event;  /* the refused request's */
  size_t period;   /* of sl_tape.periods */
  uint64_t number; /* of the next event that is put */
  uint64_t ns;
};

/* The last request that the allocator refused, of so many bytes, and its period. False: there is none. */
bool sl_cut_find(const struct sl_tape *tape, const struct sl_goal *goal, struct sl_cut *out);

/* Takes out what came after the cut, the refused request with it. */
void sl_cut_apply(struct sl_tape *tape, const struct sl_cut *cut);

/* One more event of an allocation, with its number and time. 0 or -ENOMEM. */
int sl_cut_put(struct sl_tape *tape, struct sl_cut *cut, enum sl_tape_kind kind, uint32_t allocation);

/* The two kinds. 1: it is that, and the tape goes on; 0: it is not, with why; or a negative errno. */
int sl_continue_as_step(struct sl_tape *tape, const struct sl_goal *goal, const struct sl_cut *cut,
                        struct sl_continuation *out);
int sl_continue_optimizer(struct sl_db *db, struct sl_tape *tape, const struct sl_goal *goal, const struct sl_cut *cut,
                          struct sl_continuation *out, struct sl_error *error);

#endif

/*
 * All that can be changed of what a rank asks for, together: in one order, so that a later change sees what an earlier
 * one has made. (What is changed of the allocator alone is whatif.h's.)
 */
#ifndef SHARDLEDGER_CHANGES_H
#define SHARDLEDGER_CHANGES_H

#include "change_optimizer.h"
#include "change_scale.h"
#include "storage/predict/tape/tape.h"
#include "storage/tables/db.h"

enum sl_change_turn { /* a change of a lower one is made first */
                      SL_TURN_optimizer,
                      SL_TURN_reshard,
                      SL_TURN_recompute,
                      SL_TURN_loss,
                      SL_TURN_workspaces,
                      SL_TURNS,
};

struct sl_changes_run { /* of the same job, in another size */
  struct sl_db *db;
  double factor; /* its batch or length over the recorded one */
};

struct sl_changes { /* zero-initialised: none */
  enum sl_optimizer optimizer;
  bool reshard_off, reshard_on, no_workspaces;
  int64_t first_step,
      end_step;        /* of optimizer and reshard_off: in these only, the last one not included; 0: to the end */
  uint64_t world_size; /* ranks; 0: as recorded */
  const char *param_dtype, *reduce_dtype; /* of FSDP2's MixedPrecisionPolicy, as bfloat16; NULL: as recorded */
  uint64_t reshard_ranks;     /* that units keep their parameters split over after forward; 0: as recorded */
  const char *recompute;      /* as of change_recompute.h; NULL: as recorded */
  uint64_t accumulate;        /* forwards and backwards a step; 0: as recorded */
  uint64_t loss_chunks;       /* pieces; 0: as recorded */
  bool no_sync;               /* FSDP2 reduces in the last of them only */
  bool optimizer_in_backward; /* it steps as each gradient is there, which then is freed */
  bool offload_optimizer;     /* its states are on the device in its steps only */
  double scale;               /* batch or length over the recorded one; 0: as recorded */
  struct sl_changes_run runs[SL_SCALE_RUNS]; /* from which that is told; their databases stay the caller's */
  size_t run_count;
};

bool sl_changes_any(const struct sl_changes *changes);

/*
 * A copy of a rank's tape with them, and as sl_tape.most the one with later ends where such are not known; free it with
 * sl_tape_free. 0; -ENOTSUP or -ENODATA, with the reason as the rest of a sentence in error; or another negative errno.
 */
int sl_changes_make(struct sl_db *db, const struct sl_tape *tape, const struct sl_changes *changes, struct sl_tape *out,
                    struct sl_error *error);

/*
 * Of a tape whose changes end as early as they can: the same where they end as late becomes its sl_tape.most, unless
 * nothing was open. most is empty then. 0 or -ENOMEM, when both stay as they were.
 */
int sl_changes_join(struct sl_tape *tape, struct sl_tape *most);

#endif

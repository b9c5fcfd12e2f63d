#include "changes.h"

#include "change_recompute.h"
#include "change_reshard.h"
#include "change_workspaces.h"
#include "change_world_size.h"

#include <errno.h>
#include <stdlib.h>

bool sl_changes_any(const struct sl_changes *changes) {
  return changes->optimizer != SL_OPTIMIZER_as_recorded || changes->reshard_off || changes->no_workspaces ||
         changes->world_size || changes->recompute;
}

static int world_size_change(struct sl_db *db, struct sl_tape *tape, uint64_t ranks, struct sl_error *error) {
  struct sl_shards shards;
  int r = sl_shards_read(db, tape->rank, &shards, error);
  if (r < 0)
    return r;
  r = sl_change_world_size(tape, &shards, ranks, error);
  sl_shards_free(&shards);
  return r;
}

static bool has_two_ends(const struct sl_changes *changes) {
  return changes->recompute;
}

static int one_end_read(struct sl_db *db, uint32_t rank, const struct sl_changes *changes, bool at_latest,
                        struct sl_tape *out, struct sl_error *error) {
  const int64_t last = changes->end_step ? changes->end_step - 1 : INT64_MAX;
  int r = sl_tape_read(db, rank, out, error);
  if (r < 0)
    return r;
  if (changes->world_size) /* first: what it is held against is as recorded */
    r = world_size_change(db, out, changes->world_size, error);
  if (r == 0 && changes->optimizer != SL_OPTIMIZER_as_recorded)
    r = sl_change_optimizer(out, changes->optimizer, changes->first_step, last, error);
  if (r == 0 && changes->reshard_off)
    r = sl_change_reshard_off(out, changes->first_step, last, error);
  if (r == 0 && changes->recompute)
    r = sl_change_recompute(db, out, changes->recompute, at_latest, error);
  if (r == 0 && changes->no_workspaces)
    r = sl_change_no_workspaces(out, error);
  if (r < 0)
    sl_tape_free(out);
  return r;
}

int sl_changes_read(struct sl_db *db, uint32_t rank, const struct sl_changes *changes, struct sl_tape *out,
                    struct sl_error *error) {
  int r = one_end_read(db, rank, changes, false, out, error);
  if (r < 0 || !has_two_ends(changes))
    return r;
  struct sl_tape *most = calloc(1, sizeof *most);
  if (!most)
    r = sl_no_memory(error);
  else
    r = one_end_read(db, rank, changes, true, most, error);
  if (r < 0) {
    free(most);
    sl_tape_free(out);
    return r;
  }
  out->most = most;
  return 0;
}

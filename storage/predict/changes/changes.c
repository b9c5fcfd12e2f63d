/* Makes all changes of a tape, each after those that it builds on. */
#include "changes.h"

#include "change_accumulate.h"
#include "change_loss_chunks.h"
#include "change_mixed_precision.h"
#include "change_offload.h"
#include "change_optimizer_in_backward.h"
#include "change_recompute.h"
#include "change_recompute_none.h"
#include "change_reshard.h"
#include "change_reshard_on.h"
#include "change_reshard_to.h"
#include "change_workspaces.h"
#include "change_world_size.h"
#include "storage/predict/shards/unit_sizes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool sl_changes_any(const struct sl_changes *changes) {
  return changes->optimizer != SL_OPTIMIZER_as_recorded || changes->reshard_off || changes->reshard_on ||
         changes->reshard_ranks || changes->param_dtype || changes->no_workspaces || changes->world_size ||
         changes->recompute || changes->accumulate || changes->loss_chunks || changes->offload_optimizer ||
         changes->optimizer_in_backward || changes->scale > 0;
}

static int world_size_change(struct sl_db *db, struct sl_tape *tape, uint64_t ranks, struct sl_error *error) {
  struct sl_shards shards;
  int r = sl_shards_read(db, tape->rank, &shards, error);
  if (r < 0)
    return r;
  if (sl_shards_replicas(&shards) > 1 && shards.units[0].ranks)
    shards.rank %= (uint32_t)shards.units[0].ranks; /* its place in its group, of which one follows the other */
  r = sl_change_world_size(tape, &shards, ranks, error);
  sl_shards_free(&shards);
  return r;
}

/* Of the ranks that another change has put it on. */
static uint64_t ranks_of(const struct sl_tape *tape, const struct sl_changes *changes) {
  return changes->world_size ? changes->world_size : (uint64_t)tape->world_size;
}

static int mixed_precision_change(struct sl_db *db, struct sl_tape *tape, const struct sl_changes *changes,
                                  bool at_most, struct sl_error *error) {
  struct sl_shards before, after;
  int r = sl_shards_read(db, tape->rank, &before, error);
  if (r < 0)
    return r;
  r = sl_shards_read(db, tape->rank, &after, error);
  if (r == 0) {
    const uint64_t replicas = sl_shards_replicas(&before), ranks = ranks_of(tape, changes) / replicas;
    for (size_t i = 0; i < before.unit_count && changes->world_size; i++) {
      struct sl_shard_unit *unit = &before.units[i];
      unit->reshard_ranks = unit->reshard_ranks == unit->ranks ? ranks : unit->reshard_ranks;
      unit->ranks = ranks;
    }
    r = sl_change_mixed_precision(tape, &before, &after, ranks, changes->param_dtype, changes->reduce_dtype, at_most,
                                  error);
    sl_shards_free(&after);
  }
  sl_shards_free(&before);
  return r;
}

static int reshard_change(struct sl_db *db, struct sl_tape *tape, const struct sl_changes *changes,
                          struct sl_error *error) {
  struct sl_shards shards;
  int r = sl_shards_read(db, tape->rank, &shards, error);
  if (r < 0)
    return r;
  r = sl_change_reshard_to(tape, &shards, ranks_of(tape, changes), changes->reshard_ranks, error);
  sl_shards_free(&shards);
  return r;
}

static int accumulate_change(struct sl_db *db, struct sl_tape *tape, const struct sl_changes *changes, bool at_latest,
                             struct sl_error *error) {
  struct sl_shards shards;
  int r = sl_shards_read(db, tape->rank, &shards, error);
  if (r < 0)
    return r;
  r = sl_change_accumulate(db, tape, &shards, changes->accumulate, changes->no_sync, at_latest, error);
  sl_shards_free(&shards);
  return r;
}

static int scale_change(struct sl_tape *tape, const struct sl_changes *changes, bool at_most, struct sl_error *error) {
  struct sl_tape others[SL_SCALE_RUNS] = {0};
  struct sl_scale_run runs[SL_SCALE_RUNS];
  int r = 0;
  for (size_t i = 0; i < changes->run_count && r == 0; i++) {
    runs[i] = (struct sl_scale_run){&others[i], changes->runs[i].factor};
    r = sl_tape_read(changes->runs[i].db, tape->rank, &others[i], error);
    if (r == -ENOENT)
      r = sl_error_set(error, -ENOTSUP, "the other run has no such rank");
  }
  if (r == 0)
    r = sl_change_scale(tape, runs, changes->run_count, changes->scale, at_most, error);
  for (size_t i = 0; i < changes->run_count; i++)
    sl_tape_free(&others[i]);
  return r;
}

static bool has_two_ends(const struct sl_changes *changes) {
  return changes->recompute || changes->accumulate || changes->param_dtype || changes->loss_chunks ||
         changes->optimizer_in_backward || changes->scale > 0;
}

/* In the order of enum sl_change_turn. */
static int one_end_make(struct sl_db *db, const struct sl_tape *tape, const struct sl_changes *changes, bool at_latest,
                        struct sl_tape *out, struct sl_error *error) {
  const int64_t last = changes->end_step ? changes->end_step - 1 : INT64_MAX;
  int r = sl_tape_copy(tape, out);
  if (r < 0)
    return sl_no_memory(error);
  if (changes->scale > 0 && changes->world_size)
    r = sl_error_set(error, -ENOTSUP, "another size and another number of ranks together are not known");
  else if (changes->world_size == 1 &&
           (changes->reshard_off || changes->reshard_on || changes->reshard_ranks || changes->param_dtype))
    r = sl_error_set(
        error, -ENOTSUP,
        "with one rank nothing is gathered: what resharding or mixed precision would change there is not known");
  else if (changes->scale > 0)
    r = scale_change(out, changes, at_latest, error);
  else if (changes->world_size) /* first: what it is held against is as recorded */
    r = world_size_change(db, out, changes->world_size, error);
  if (r == 0 && changes->param_dtype)
    r = mixed_precision_change(db, out, changes, at_latest, error);
  if (r == 0 && changes->optimizer_in_backward)
    r = sl_change_optimizer_in_backward(db, out, ranks_of(out, changes), changes->optimizer, at_latest, error);
  else if (r == 0 && changes->optimizer != SL_OPTIMIZER_as_recorded)
    r = sl_change_optimizer(out, changes->optimizer, changes->first_step, last, error);
  if (r == 0 && changes->reshard_off)
    r = sl_change_reshard_off(out, changes->first_step, last, error);
  if (r == 0 && changes->reshard_ranks)
    r = reshard_change(db, out, changes, error);
  if (r == 0 && changes->reshard_on)
    r = sl_change_reshard_on(db, out, error);
  if (r == 0 && changes->recompute)
    r = strcmp(changes->recompute, "none") == 0 ? sl_change_recompute_none(db, out, at_latest, error)
                                                : sl_change_recompute(db, out, changes->recompute, at_latest, error);
  if (r == 0 && changes->loss_chunks)
    r = sl_change_loss_chunks(db, out, changes->loss_chunks, at_latest, error);
  if (r == 0 && changes->accumulate)
    r = accumulate_change(db, out, changes, at_latest, error);
  if (r == 0 && changes->offload_optimizer)
    r = sl_change_offload_optimizer(out, error);
  if (r == 0 && changes->no_workspaces)
    r = sl_change_no_workspaces(out, error);
  if (r < 0)
    sl_tape_free(out);
  return r;
}

static bool is_same(const struct sl_tape *one, const struct sl_tape *other) {
  if (one->event_count != other->event_count || one->allocation_count != other->allocation_count)
    return false;
  for (size_t i = 0; i < one->event_count; i++) {
    const struct sl_tape_event *a = &one->events[i], *b = &other->events[i];
    if (a->number != b->number || a->index != b->index || a->kind != b->kind)
      return false;
  }
  for (size_t i = 0; i < one->allocation_count; i++)
    if (one->allocations[i].requested != other->allocations[i].requested)
      return false;
  return true;
}

int sl_changes_join(struct sl_tape *tape, struct sl_tape *most) {
  if (is_same(tape, most)) {
    sl_tape_free(most);
    return 0;
  }
  tape->most = calloc(1, sizeof *tape->most);
  if (!tape->most)
    return -ENOMEM;
  *tape->most = *most;
  *most = (struct sl_tape){0};
  return 0;
}

int sl_changes_make(struct sl_db *db, const struct sl_tape *tape, const struct sl_changes *changes, struct sl_tape *out,
                    struct sl_error *error) {
  struct sl_tape most = {0};
  int r = one_end_make(db, tape, changes, false, out, error);
  if (r < 0 || !has_two_ends(changes))
    return r;
  r = one_end_make(db, tape, changes, true, &most, error);
  if (r == 0 && (r = sl_changes_join(out, &most)) < 0)
    r = sl_no_memory(error);
  sl_tape_free(&most);
  if (r < 0)
    sl_tape_free(out);
  return r;
}

/* Decides whether any change can be enough, from what is needed whatever is changed. */
#include "verdict.h"

#include "storage/predict/shards/shards.h"
#include "storage/tables/sql_text.h"

struct kept {
  uint64_t model, program, states, shards;
};

static int kept_read(struct sl_db *db, struct kept *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_advise_verdict_sql, NULL, &row, error);
  if (r > 0)
    *out = (struct kept){(uint64_t)sl_column_int(row, 0), (uint64_t)sl_column_int(row, 1),
                         (uint64_t)sl_column_int(row, 2), (uint64_t)sl_column_int(row, 3)};
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

/* What its gradient takes on this rank; 0: it gets none. */
static uint64_t gradient_bytes(const struct sl_shards *shards, const struct sl_shard_parameter *p) {
  if (!p->is_trained || p->is_offloaded)
    return 0;
  return p->element_bytes *
         (p->ranks > 1 ? sl_shard_own(p, p->ranks, shards->rank % p->ranks) : p->rows * p->row_elements);
}

/* Without units all have to be whole: how FSDP1 and tensor parallelism split them is not told by shapes. */
static bool is_known(const struct sl_shards *shards, const struct kept *kept) {
  for (size_t i = 0; i < shards->parameter_count; i++)
    if (!shards->parameters[i].element_bytes || !shards->parameters[i].ranks)
      return false;
  return shards->parameter_count && (shards->unit_count || !kept->shards);
}

/* A unit's buffer and what is copied out of it are there together. */
static uint64_t gathered_most(const struct sl_shards *shards) {
  uint64_t most = 0;
  for (size_t i = 0; i < shards->unit_count; i++) {
    const struct sl_shard_unit *unit = &shards->units[i];
    const bool is_gathered = unit->ranks > 1 && !unit->is_offloaded;
    const uint64_t bytes = is_gathered ? 2 * sl_unit_gather(shards, unit, unit->ranks) : 0;
    most = bytes > most ? bytes : most;
  }
  return most;
}

static void step_take(const struct sl_shards *shards, const struct kept *kept, struct sl_verdict *out) {
  uint64_t all = 0, largest = 0;
  if (!is_known(shards, kept))
    return;
  for (size_t i = 0; i < shards->parameter_count; i++) {
    const uint64_t bytes = gradient_bytes(shards, &shards->parameters[i]);
    all += bytes;
    largest = bytes > largest ? bytes : largest;
  }
  out->is_sharded = shards->unit_count > 0;
  out->is_estimate = true;
  out->kept_bytes = kept->model;
  out->beside_bytes = all;
  out->beside = "their gradients";
  if (kept->states + largest < all) {
    out->beside_bytes = kept->states + largest;
    out->beside = kept->states ? "the optimizer's states and the largest gradient" : "the largest gradient";
  }
  const uint64_t gathered = gathered_most(shards);
  if (gathered > out->beside_bytes) {
    out->beside_bytes = gathered;
    out->beside = "the largest unit of FSDP2: its all-gather's buffer and what is copied out of it";
  }
}

/* Before the first step nothing is let go again that a change could leave out. */
static void setup_take(const struct sl_goal *goal, const struct kept *kept, struct sl_verdict *out) {
  const uint64_t bytes = kept->model + kept->program;
  if (!goal->is_refused || goal->has_steps || !goal->is_allocator ||
      bytes + goal->refused_bytes <= out->kept_bytes + out->beside_bytes)
    return;
  out->is_estimate = false;
  out->kept_bytes = bytes;
  out->beside_bytes = goal->refused_bytes;
  out->beside = "the refused request";
}

int sl_verdict_read(struct sl_db *db, const struct sl_goal *goal, struct sl_verdict *out, struct sl_error *error) {
  struct sl_shards shards;
  struct kept kept = {0};
  *out = (struct sl_verdict){.suffices = SL_SUFFICES_something};
  int r = kept_read(db, &kept, error);
  if (r == 0)
    r = sl_shards_read(db, goal->rank, &shards, error);
  if (r < 0)
    return r;
  step_take(&shards, &kept, out);
  setup_take(goal, &kept, out);
  out->least_bytes = out->kept_bytes + out->beside_bytes;
  sl_shards_free(&shards);
  return 0;
}

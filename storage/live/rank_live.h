/*
 * One rank while it runs: its log is read as it grows, through the same code that makes the ledger of it.
 *
 *   log that grows ─► the rank's ledger in the making ─► struct sl_live_state
 */
#ifndef SHARDLEDGER_RANK_LIVE_H
#define SHARDLEDGER_RANK_LIVE_H

#include "live_categories.h"
#include "storage/log/log_reader.h"
#include "storage/tables/ledger_writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  SL_LIVE_FRAMES = 6,
  SL_LIVE_CATEGORIES = 24,
  SL_LIVE_COLLECTIVES = 1024,  /* so many are kept at most … */
  SL_LIVE_COLLECTIVE_STEPS = 3 /* … of so many steps */
};

struct sl_live_place { /* names are the rank's own, valid until it is read again */
  const char *phase;   /* word of a kind; NULL: outside of everything */
  const char *name;    /* of the range */
  const char *module;  /* FQN, "" for a root; NULL: none */
};

struct sl_live_peak {
  uint64_t bytes; /* allocated; 0: none yet */
  uint64_t at_ns;
  int64_t step;    /* -1: outside of steps */
  int64_t after;   /* outside of steps: the step before; -1: none, it is the setup */
  char period[80]; /* outside of steps: what ran there the longest; "": nothing with a name */
  char phase[24];  /* "": outside of everything */
  char module[160];
};

struct sl_live_share { /* a category's part of a peak */
  char category[64];
  uint64_t bytes;
};

struct sl_live_collective {
  const char *operation, *module; /* as in sl_live_place; module NULL: none */
  uint64_t comm, bytes, start_ns, end_ns;
  int64_t seq, step;
  uint32_t kernel_calls;
};

struct sl_live_state {
  int64_t world_size, local_rank, pid, device;       /* -1: unknown */
  const char *host, *device_name, *device_uuid;      /* NULL: unknown */
  const char *slurm_job_id, *run_id, *torch_version; /* run_id: torchrun's */
  const char *k8s_node, *k8s_namespace, *k8s_pod;
  uint64_t device_bytes;
  uint64_t last_ns;  /* of the last event that was read */
  bool ended;        /* in order */
  bool figures_only; /* categories and shares are not known, here and below */
  uint64_t events, lost, gaps;
  const char *gap; /* why, of the last one; NULL: none */

  bool recorded;     /* PyTorch's allocations are */
  bool drivers_pool; /* cudaMallocAsync: reserved bytes are not known */
  struct sl_block_totals now;
  uint64_t device_used;                                   /* of the last sample; 0: none */
  struct sl_live_category categories[SL_LIVE_CATEGORIES]; /* filled by sl_live_rank_categories */
  size_t category_count;

  int64_t step;                                /* -1: outside of steps */
  uint64_t steps;                              /* that have ended */
  uint64_t start_ns;                           /* of the step, or of what follows the last one */
  struct sl_live_place frames[SL_LIVE_FRAMES]; /* what it is doing, the innermost first */
  size_t frame_count;
  struct sl_live_peak step_peak; /* of the step, or since the last one */

  struct sl_live_peak peak; /* the highest so far */
  uint64_t peak_reserved, peak_device;

  struct sl_period_row last;                      /* the last step that ended; step -1: none */
  struct sl_live_peak last_peak;                  /* its peak */
  struct sl_live_share shares[SL_CATEGORY_limit]; /* at its peak, the largest first */
  size_t share_count;
  uint64_t steps_agreed, steps_differed; /* with PyTorch's own statistics */

  uint64_t refusals, refused_bytes; /* requests that did not fit; the bytes of the last one */
  struct sl_live_peak refused_at;   /* and where that was */
  uint64_t retries;                 /* requests that were served once the cache had been given back */
};

struct sl_live_rank;

/* As sl_log_open. rules may be NULL, and must outlive the rank. figures_only: all but categories, in half of the time.
 */
int sl_live_rank_open(const char *directory, const struct sl_user_rules *rules, bool figures_only,
                      struct sl_live_rank **out, struct sl_error *error);
struct sl_live_rank *sl_live_rank_close(struct sl_live_rank *rank); /* returns NULL */

/* Looks for what was recorded since. 0 or a negative errno. */
int sl_live_rank_look(struct sl_live_rank *rank, struct sl_error *error);

/*
 * Reads at most `events` of what the last look found and what happened until `until_ns`. 1: there is more; 0: that was
 * all; or a negative errno.
 */
int sl_live_rank_read(struct sl_live_rank *rank, uint64_t until_ns, uint64_t events, struct sl_error *error);

/*
 * Keeps what the functions below tell, some 20 KiB, and gives back all else, the log too. Nothing is read of the rank
 * any more: looking and reading find nothing new. 0 or -ENOMEM, and all is as it was.
 */
int sl_live_rank_settle(struct sl_live_rank *rank);

/* Fills *out, but for the categories; its pointers are the rank's, valid until it is read again. */
void sl_live_rank_state(struct sl_live_rank *rank, struct sl_live_state *out);

/* What is alive now by category, the largest first. Looks at everything that is alive. 0 or -ENOMEM. */
int sl_live_rank_categories(struct sl_live_rank *rank, struct sl_live_state *out);

bool sl_live_rank_ended(const struct sl_live_rank *rank);         /* in order */
uint64_t sl_live_rank_last_ns(const struct sl_live_rank *rank);   /* of the last event that was read; 0: none */
uint64_t sl_live_rank_held(const struct sl_live_rank *rank);      /* as sl_log_held */
int64_t sl_live_rank_world_size(const struct sl_live_rank *rank); /* -1: unknown */
const char *sl_live_rank_host(const struct sl_live_rank *rank);   /* NULL: unknown */

/* Collectives of the last steps whose times are known, in the order in which these became known. */
size_t sl_live_rank_collectives(const struct sl_live_rank *rank, struct sl_live_collective *out, size_t capacity);

#endif

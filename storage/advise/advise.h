/*
 * What would make a run fit? Candidates (candidates.def) are tried on its tape by storage/predict's whatif, one by one
 * and, where none is enough, together; what can't be predicted is told by how much memory it is about.
 *
 *   goal.h          what has to be reached: a limit, and which request was refused
 *   continuation.h  how a dead run would have gone on
 *   candidates.h    what can be changed
 *   price.h         what that costs in time
 *   verdict.h       whether anything is enough
 */
#ifndef SHARDLEDGER_ADVISE_H
#define SHARDLEDGER_ADVISE_H

#include "candidates.h"
#include "continuation.h"
#include "price.h"
#include "storage/predict/replay/floor.h"
#include "storage/predict/replay/whatif.h"
#include "verdict.h"

enum { SL_ADVICE_PARTS = 3 };

enum sl_fits {
  SL_FITS_yes,     /* to the end of what is known, in each play */
  SL_FITS_life,    /* the same, had the limit held from the beginning (sl_goal.limit_life) */
  SL_FITS_while,   /* the same, for some steps: what grows from step to step uses it up */
  SL_FITS_plays,   /* in some plays */
  SL_FITS_limit,   /* where the limit is more than it was at least (sl_goal.limit_most) */
  SL_FITS_past,    /* the refused request is served; what follows is not known */
  SL_FITS_perhaps, /* not predicted: it is about as much memory as is missing, or more */
  SL_FITS_hardly,  /* not predicted: it is about less memory than is missing, which is no proof that it can't help */
  SL_FITS_no,
  SL_FITS_refused, /* the run can't have it, or it can't be told: why says so */
};

struct sl_advice {
  const struct sl_candidate *parts[SL_ADVICE_PARTS];
  int64_t counts[SL_ADVICE_PARTS]; /* of each part's fact, and its name; 0 and "" */
  char names[SL_ADVICE_PARTS][128];
  int part_count;
  bool is_predicted;
  enum sl_fits fits;
  struct sl_whatif_range after[SL_QUANTITIES]; /* of sl_advise.need, with the change; where it is predicted */
  enum sl_standing standing[SL_QUANTITIES];
  unsigned plays, refused_plays;
  uint64_t retries;
  uint64_t about_bytes; /* of its fact: what the change is about was alive then; 0: none */
  uint64_t most_bytes;  /* what it may be about at the most, with what was yet to come; about_bytes or more */
  uint64_t lasts_steps; /* of SL_FITS_while: at most, the one that died included */
  struct sl_cost cost;
  char text[400], counted[160], code[1200], options[200];
  char why[400]; /* of SL_FITS_refused and no: "" or a sentence */
};

struct sl_advise {
  struct sl_goal goal;
  struct sl_continuation rest;
  char why[400]; /* nothing is predicted, since …; "" */
  /* What the job needs as it is, to the end of what is known of it; nothing where nothing is predicted. */
  struct sl_whatif_range need[SL_QUANTITIES];
  enum sl_standing need_standing[SL_QUANTITIES];
  int64_t
      from_step; /* figures are the highest from this step on, in which the limit came to hold; -1: of the whole life */
  uint64_t missing_bytes; /* at least */
  bool fits_already;      /* under the limit, as it is */
  uint64_t retries;       /* then */
  uint64_t growth_bytes;  /* from step to step; 0: nothing grows */
  bool has_floor;
  struct sl_floor floor;
  uint64_t floor_reserved; /* what was reserved at its peak, which the floor is of */
  struct sl_verdict verdict;
  struct sl_advice *items; /* the first is the one to take */
  size_t count;
};

/*
 * at_ns: of the refused request that the rank has to get past, -1: none was. budget_bytes: what it may take of the
 * device; 0: what refused it, or the device's memory. Makes the table `held` where it is not there yet. Free it with
 * sl_advise_free. 0 or a negative errno, with the sentence in error.
 */
int sl_advise_run(struct sl_db *db, uint32_t rank, int64_t at_ns, uint64_t budget_bytes, struct sl_advise *out,
                  struct sl_error *error);
void sl_advise_free(struct sl_advise *advise);

/* "leak", "expandable_segments+adamw_fused" */
const char *sl_advice_word(const struct sl_advice *advice, char *out, size_t size);

#endif

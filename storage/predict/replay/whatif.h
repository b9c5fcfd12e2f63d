/*
 * What would a rank have taken, had one thing been different? Its tape is played unchanged first: where that does not
 * come out as recorded in every period, nothing is predicted. Then it is played with the change.
 *
 * PyTorch takes the lower address of two equal free blocks, and the driver puts segments elsewhere in each process: two
 * recordings of one program differ in the order of their addresses, from the first segments on. So a figure that such a
 * choice has decided can't be known; it is played with many orders, and what came out lowest and highest is told.
 *
 *   exact     no choice was between equal blocks of different segments: proven, whatever the addresses are
 *   bound     proven to lie between both ends: of sl_floor; and of changes that leave open how long something lives
 *             (sl_tape.most), which are played at the least and at the most
 *   estimate  not proven: the lowest and the highest of SL_PLAYS plays, which may all have come to one figure
 *   refused   there is no answer, for this reason
 */
#ifndef SHARDLEDGER_WHATIF_H
#define SHARDLEDGER_WHATIF_H

#include "replay.h"
#include "storage/predict/tape/tape.h"

enum sl_standing { SL_STANDING_exact, SL_STANDING_bound, SL_STANDING_estimate, SL_STANDING_refused };
enum { SL_PLAYS = 16 };

struct sl_whatif_change {        /* zero-initialised: none */
  const char *alloc_conf;        /* PYTORCH_CUDA_ALLOC_CONF; NULL: as recorded */
  uint64_t device_bytes;         /* memory of the device; 0: enough, as recorded */
  uint64_t limit_bytes;          /* of the process (set_per_process_memory_fraction); 0: as recorded */
  uint64_t recorded_limit_bytes; /* of the recorded process, which its record does not tell; 0: none, or not known */
  uint64_t limit_event;          /* limit_bytes holds from this event of the allocator on; 0: from the first */
  bool room_without_end;         /* whatever was refused: it has all it asks for */
  unsigned most_plays;           /* 0: SL_PLAYS */
  /* The tape was played unchanged already, and it came out as recorded; it outlives the answer. NULL: it is played. */
  const struct sl_replay *unchanged;
};

struct sl_whatif_range {
  uint64_t low, high;
};

enum sl_whatif_end { SL_END_all, SL_END_refused, SL_END_served };

struct sl_whatif {
  enum sl_standing standing;                    /* the weakest of the figures' of the whole life */
  char reason[700];                             /* why it is refused or an estimate; "" */
  struct sl_whatif_range *peaks[SL_QUANTITIES]; /* of each period */
  struct sl_whatif_range highest[SL_QUANTITIES];
  struct sl_replay before, after; /* unchanged, and the change with addresses as recorded */
  bool before_is_others;          /* before is sl_whatif_change.unchanged */
  size_t reached;                 /* periods that a play got to */
  uint64_t retries;               /* the most */
  uint64_t room_bytes;            /* what the device has for segments; 0: enough */
  bool room_is_open;              /* how much the recorded run had is known from refused requests alone */
  /*
   * How it ends: with the recorded end (all); with a request that is refused; or with one that is served, and had
   * failed in the recorded run, so that nobody knows what would follow. The figures are of the time until then.
   */
  enum sl_whatif_end end;
  bool ends_surely;              /* in each of the plays */
  unsigned plays, out_of_memory; /* how many, and those that ended with a refused request */
  bool is_changed;
  bool has_ends;                   /* played at the least and at the most */
  bool splits_all;                 /* a block is as large as what it holds, so that what lives is what is allocated */
  bool is_doubtful;                /* a change takes something for granted (sl_tape.doubt): nothing is proven */
  size_t open_from[SL_QUANTITIES]; /* the first period of which a peak is not proven; SIZE_MAX: all are */
};

/*
 * Plays a tape unchanged, for several questions about it. 0 with a reason where it does not come out as recorded, so
 * that nothing can be predicted, else ""; or -ENOMEM. Free out with sl_replay_free in both cases.
 */
int sl_whatif_unchanged(const struct sl_tape *tape, struct sl_replay *out, char *reason, size_t size);

/* The allocator's settings that are not known, in a text as PYTORCH_CUDA_ALLOC_CONF has it: "" or their names. */
void sl_alloc_conf_unknown(const char *text, char *out, size_t size);

/*
 * Free it with sl_whatif_free. 0 or -ENOMEM; a refusal is an answer. changed: the same tape with what else is changed;
 * NULL: nothing. The answer's allocations are of that one, where there is one.
 */
int sl_whatif_ask(const struct sl_tape *tape, const struct sl_tape *changed, const struct sl_whatif_change *change,
                  struct sl_whatif *out);
void sl_whatif_free(struct sl_whatif *answer);

/* Of a period's peak, by its index of sl_tape.periods; SIZE_MAX: of the highest of all. */
enum sl_standing sl_whatif_standing(const struct sl_whatif *answer, int quantity, size_t period);

#endif

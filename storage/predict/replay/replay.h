/*
 * A tape is played again on an allocator that chooses blocks itself: what would it take under other settings, on a
 * smaller device? Played unchanged it must come out as recorded, to the byte, in every period: sl_replay_differences.
 */
#ifndef SHARDLEDGER_REPLAY_H
#define SHARDLEDGER_REPLAY_H

#include "storage/predict/tape/tape.h"

enum sl_replay_addresses {                        /* of segments: what is free lower down is taken first */
                           SL_ADDRESSES_recorded, /* the n-th of a size and a place has the n-th one's that was recorded
                                                   */
                           SL_ADDRESSES_rising,   /* new ones, each above all before */
                           SL_ADDRESSES_falling,  /* below */
                           SL_ADDRESSES_shuffled, /* new ones, anywhere: by sl_replay_options.seed */
};

enum sl_replay_completions { /* of blocks that other streams still used when they were freed */
                             SL_COMPLETIONS_recorded,
                             SL_COMPLETIONS_at_once,
                             SL_COMPLETIONS_late, /* where the period ends, or a retry waits for them */
};

/* How the allocator came to give segments back, by the event that begins the row of them. */
enum sl_sweep { SL_SWEEP_unknown, SL_SWEEP_empty_cache, SL_SWEEP_within_request };

struct sl_replay_options {
  const char *config; /* settings; NULL: the recorded ones */
  enum sl_replay_addresses addresses;
  uint64_t seed; /* of shuffled addresses */
  enum sl_replay_completions completions;
  uint64_t limit_bytes, capacity_bytes; /* as of sl_chooser_options */
  uint64_t limit_event;                 /* the limit holds from this event of the allocator on; 0: from the first */
  const uint8_t *sweeps; /* enum sl_sweep of each sl_tape.segments, from an unchanged replay; NULL: this is one */
};

enum { SL_REPLAY_OFF = 64 }; /* what follows so many periods that are not as recorded tells nothing more */

struct sl_replay_peak {
  uint64_t bytes;
  size_t period;     /* of sl_tape.periods */
  size_t allocation; /* that reached it, of sl_tape.allocations; SIZE_MAX: it began so high */
};

enum { SL_QUANTITIES = 4 }; /* requested, allocated, active, reserved: the order of struct sl_block_totals */

struct sl_replay {
  struct sl_block_totals *peaks, *ends; /* of each period */
  struct sl_replay_peak highest[SL_QUANTITIES];
  uint64_t *categories; /* bytes alive at the highest allocated point, by sl_tape.categories */
  uint8_t *sweeps;      /* of each segment event, from an unchanged replay */
  uint64_t retries;
  uint64_t refused_bytes; /* of an unchanged one: reserved bytes that there was no room for, the fewest; 0: never */
  uint64_t unmatched;     /* events whose allocation could not be told: it proves nothing */
  bool waits;             /* blocks were freed while other streams used them */
  size_t open_from[SL_QUANTITIES]; /* the first period of which a peak may be due to the order of segments' addresses,
                                      which nobody knows of a changed run; SIZE_MAX: none is */
  struct {
    bool is_one;
    bool was_served;           /* a request that had failed in the recorded run: what follows it was never recorded */
    size_t period, allocation; /* SIZE_MAX: of a request that the tape knows no allocation of */
    uint64_t bytes, reserved_bytes;
  } stop;        /* played until here */
  size_t played; /* periods, from the first: all, but where an unchanged one is off in SL_REPLAY_OFF of them */
};

/* Free it with sl_replay_free. 0 or -ENOMEM. */
int sl_replay_run(const struct sl_tape *tape, const struct sl_replay_options *options, struct sl_replay *out);
void sl_replay_free(struct sl_replay *replay);

/* In how many periods that were played one of the peaks or ends is not as recorded; *first is the first of them, of
 * sl_tape.periods. */
size_t sl_replay_differences(const struct sl_tape *tape, const struct sl_replay *replay, size_t *first);

#endif

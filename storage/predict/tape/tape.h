/*
 * What a rank asked its allocator for, in the allocator's order, from its ledger: the tape that is played again, as it
 * was or changed. Periods that repeat another one (period.same_as) have few rows of their own; their events are the
 * other one's.
 */
#ifndef SHARDLEDGER_TAPE_H
#define SHARDLEDGER_TAPE_H

#include "storage/allocator/block_map.h"
#include "storage/error.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SL_TAPE_MIDDLE = 1 << 20 };

enum sl_tape_kind { SL_TAPE_alloc, SL_TAPE_free, SL_TAPE_complete, SL_TAPE_segment };

struct sl_tape_event {
  uint64_t number;               /* among the allocator's events, from 1 */
  uint64_t ns;                   /* of one that a change has put in: that of the one beside it, after sl_tape_sort */
  uint32_t index;                /* of sl_tape.allocations, or of segments */
  uint32_t kind : 2, place : 30; /* enum sl_tape_kind; SL_TAPE_MIDDLE, less or more of what is put before or after it */
};

struct sl_tape_place {
  uint64_t stream;
  uint32_t pool; /* 0: the shared one; else 1 + index of sl_tape.pools */
};

struct sl_tape_allocation {
  int64_t id; /* allocation.id */
  uint64_t address, bytes, requested;
  uint64_t alloc_event, free_event, complete_event; /* 0: none */
  uint32_t place, category, phase;                  /* of sl_tape.places, .categories and .phases */
  uint32_t state;                                   /* of an optimizer's state: 1 + index of sl_tape.states; else 0 */
  uint32_t parameter;                /* of it, its gradient or state: 1 + index of sl_tape.parameters; else 0 */
  int64_t module_id, optimizer_step; /* phase.id of the optimizer step around it; 0: none */
  int64_t step, tid;                 /* -1: outside of steps */
  bool dropped;                      /* a change has taken it out */
};

enum sl_tape_action { SL_TAPE_taken, SL_TAPE_returned, SL_TAPE_existing, SL_TAPE_refused };

struct sl_tape_segment {
  uint64_t event, address, bytes;
  uint32_t place;
  uint8_t action;     /* enum sl_tape_action */
  bool is_range;      /* mapped or unmapped, of an expandable segment */
  bool after_refusal; /* given back since the driver had refused a request */
};

struct sl_tape_period {
  int64_t period, step, same_as; /* -1: none */
  char kind[12];
  uint64_t first_event, end_event;   /* the first one of the next period */
  size_t first, end;                 /* its own events, of sl_tape.events */
  struct sl_block_totals peak, last; /* as recorded */
};

struct sl_tape_optimizer_step {
  int64_t phase, step; /* phase.id; -1: outside of steps */
  uint64_t start_ns, end_ns;
};

struct sl_tape_words { /* each once, but for names of states */
  char **items;
  size_t count;
};

struct sl_tape_rest { /* what was put after the recorded end: an earlier step's, from one of its events on */
  bool is_one;
  int64_t step, like_step;
  uint64_t from_ns, shift_ns; /* of that event; what was at ns there is at ns + shift_ns here (modulo 2^64) */
};

struct sl_tape {
  uint32_t rank;
  int64_t device, world_size;
  bool is_compiled;                     /* some of its operators of autograd are made by torch.compile */
  char *config;                         /* PYTORCH_CUDA_ALLOC_CONF as recorded */
  uint64_t device_bytes, outside_bytes; /* of the device: all; the most that was not the allocator's. 0: unknown */
  bool restored;                        /* recording began later than the allocator */
  struct sl_tape_event *events;
  size_t event_count;
  struct sl_tape_allocation *allocations;
  size_t allocation_count, recorded_count; /* the recorded ones come first, by time */
  struct sl_tape_segment *segments;
  size_t segment_count;
  struct sl_tape_place *places;
  size_t place_count;
  struct sl_tape_period *periods;
  size_t period_count;
  struct sl_tape_optimizer_step *optimizer_steps; /* those that are stored, by time */
  size_t optimizer_step_count;
  struct sl_tape_rest rest;
  struct sl_tape_words pools, categories, phases, states; /* of states: their names, as exp_avg */
  struct sl_tape_words parameters;                        /* names, as blocks.0.norm.weight */
  struct sl_tape *most; /* the same where all that may live longer does, owned; NULL: there is nothing such */
  char doubt[500];      /* what changes take for granted, as a whole sentence's rest; "": nothing, so it is proven */
};

/*
 * Reads a rank's tape; free it with sl_tape_free. 0; -ENODATA or -ENOTSUP: it has none that could be played, and the
 * error says why, as the rest of a sentence ("no allocation was recorded"); or another negative errno.
 */
int sl_tape_read(struct sl_db *db, uint32_t rank, struct sl_tape *out, struct sl_error *error);
void sl_tape_free(struct sl_tape *tape);

/* The same once more, to be changed; free it with sl_tape_free. 0 or -ENOMEM. */
int sl_tape_copy(const struct sl_tape *tape, struct sl_tape *out);

/*
 * For changes: an allocation like another one, and events before (offset below 0) or after the one of a number.
 * sl_tape_sort comes after the last of them. 0 or -ENOMEM; *out is the new one's index.
 */
int sl_tape_add(struct sl_tape *tape, const struct sl_tape_allocation *like, uint64_t requested, uint32_t *out);
int sl_tape_put(struct sl_tape *tape, enum sl_tape_kind kind, uint32_t allocation, uint64_t number, int32_t offset);
/* The end of an allocation, at once for its stream too: two events, after *offset, which then is that of the second. */
int sl_tape_put_end(struct sl_tape *tape, uint32_t allocation, uint64_t number, int32_t *offset);
/* One thing more that is taken for granted, beside what other changes do. */
void sl_tape_doubt(struct sl_tape *tape, const char *format, ...) __attribute__((format(printf, 2, 3)));
int sl_tape_category(struct sl_tape *tape, const char *name, uint32_t *out);
/* Where the events of each allocation are, of sl_tape.events; SIZE_MAX: none. Until the next sl_tape_sort. */
struct sl_tape_ends {
  size_t alloc, free, complete;
};
struct sl_tape_ends *sl_tape_ends(const struct sl_tape *tape); /* of all; NULL: no memory. Free it with free. */
void sl_tape_sort(struct sl_tape *tape);                       /* and leaves out events of what is dropped */

/* Whether a number of a word, as of an allocation's category or phase, is of this word. */
static inline bool sl_tape_is(const struct sl_tape_words *words, uint32_t number, const char *word) {
  return strcmp(words->items[number], word) == 0;
}

/* Of the first count events the first one that is not before ns; count: all are. */
size_t sl_tape_event_from(const struct sl_tape *tape, size_t count, uint64_t ns);

/* Of the same the number of the last one that is not after ns; where all are, of the first. */
uint64_t sl_tape_event_until(const struct sl_tape *tape, size_t count, uint64_t ns);

/* The period of that number; NULL: none. */
const struct sl_tape_period *sl_tape_period_find(const struct sl_tape *tape, int64_t period);

#endif

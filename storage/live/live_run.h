/*
 * A run while it goes on: its ranks, which may appear later, end, or fall silent. Nothing is written to its directory,
 * and nothing in it is locked.
 */
#ifndef SHARDLEDGER_LIVE_RUN_H
#define SHARDLEDGER_LIVE_RUN_H

#include "rank_live.h"

struct sl_live_process {
  uint32_t rank; /* unique within the run */
  uint64_t start_ns;
  int64_t world_size; /* -1: unknown */
  bool is_rehearsal;  /* no other ranks are to come */
  char *path;
  struct sl_live_rank *live;
  bool more;         /* it has been read up to some instant in the past */
  uint64_t ahead_ns; /* so much its host's clock is ahead of ours, as far as that shows */
  uint64_t last_ns;  /* of the last event that was read */
  uint64_t news_ns;  /* when that came, by our clock; at the first look, by the event's */
};

struct sl_live_run {
  char *directory;
  char *attempt;               /* NULL: the newest, whichever that is at a look */
  struct sl_user_rules *rules; /* kept in the directory; NULL: none */
  bool rules_read;
  struct sl_live_process *processes; /* in order of rank */
  size_t count;
  char *listing;        /* the process directories at the last look */
  uint64_t opened_ns;   /* when they were opened last */
  struct sl_error note; /* what was left out */
};

/* What the ranks did since then has not been read: what a thread does is seen in order only after a moment. */
#define SL_LIVE_DELAY_NS 100000000u

/* directory may not exist yet; attempt: as for sl_run_open. NULL: no memory. */
struct sl_live_run *sl_live_run_new(const char *directory, const char *attempt);
struct sl_live_run *sl_live_run_free(struct sl_live_run *run); /* returns NULL */

/*
 * Looks for new processes and for what the known ones recorded until now_ns (CLOCK_REALTIME). 0; -ENOENT or -ENODATA:
 * there is nothing yet; or another negative errno.
 */
int sl_live_run_look(struct sl_live_run *run, uint64_t now_ns, struct sl_error *error);

/*
 * Reads at most `events` of each rank. 1: there is more; 0: that was all; or a negative errno. A rank that has ended is
 * settled once it is read.
 */
int sl_live_run_read(struct sl_live_run *run, uint64_t now_ns, uint64_t events, struct sl_error *error);

/*
 * Instead of looking and reading: reads all there is, for good, as many ranks at once as there are processors, each of
 * them settled before the next, so that memory is that of these. Of more than `whole` ranks only the figures. As
 * sl_live_run_look, or what the lowest rank failed with.
 */
int sl_live_run_read_once(struct sl_live_run *run, uint64_t now_ns, size_t whole, struct sl_error *error);

/* Reads a process of which only the figures are known once more, with categories. 0 or a negative errno. */
int sl_live_run_detail(struct sl_live_run *run, size_t process, uint64_t now_ns, struct sl_error *error);

struct sl_live_slow { /* one collective, over its ranks */
  const char *operation, *module;
  uint64_t bytes;
  int64_t step;
  uint64_t transfer_ns; /* the shortest time on a rank, that is without waiting for others */
  uint64_t spread_ns;   /* from the first rank's start to the last one's */
  int64_t last_rank;    /* who came last; -1: all at once, or one rank is known only */
  uint32_t ranks;
};

struct sl_live_late {         /* by process */
  uint64_t collectives, last; /* in how many it took part, in how many it came last */
  uint64_t late_ns;           /* after the first, in sum over those */
};

/*
 * The slowest collectives of the last three steps, the slowest first; returns how many, at most capacity; SIZE_MAX: no
 * memory. What is known of one of several ranks only is left out. late has a place for every process. Arrivals are
 * compared within one host: clocks of several differ.
 */
size_t sl_live_run_collectives(const struct sl_live_run *run, struct sl_live_slow *slow, size_t capacity,
                               struct sl_live_late *late);

#endif

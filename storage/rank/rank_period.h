/* A period of a rank's life: its figures, what it is called, and its rows as long as they wait. */
#ifndef SHARDLEDGER_RANK_PERIOD_H
#define SHARDLEDGER_RANK_PERIOD_H

#include "storage/attribution/memory_owners.h"
#include "storage/tables/ledger_writer.h"

enum { SL_PERIOD_NAMES = 16 };

struct sl_period_name {
  const char *name;
  const struct sl_phase *within; /* that has a name and goes on; NULL: nothing */
  uint64_t ns, at;               /* its time in sum; position at which it ended last */
};

struct sl_rank_pattern;

struct sl_rank_period {
  struct sl_period_row row;
  struct sl_rows rows, device_rows; /* as long as they wait */
  struct sl_rank_pattern *pattern;  /* owned; NULL: every period is kept */
  uint64_t began_at, ended_at;      /* positions of the last event before it, and of its own last one */
  uint64_t decided_at;              /* until where it has been decided: of a long one in pieces */
  uint64_t peak_at;                 /* position of its highest point */
  uint64_t first_allocation;        /* id */
  uint64_t last_collective;         /* id */
  size_t first_item, end_item;      /* those that are not summed up yet */
  struct sl_memory_owner *owners;   /* at its highest point, when that is in an earlier piece; owned */
  size_t owner_count;
  struct sl_period_name names[SL_PERIOD_NAMES]; /* what ran in it, outside of steps */
  size_t name_count;
  bool kept;  /* whatever it did */
  bool waits; /* it repeats another one, and may yet be the last */
  bool left_out;
  uint64_t same_peak_phase; /* of the period that it repeats */
  uint32_t same_peak_module;
};

void sl_rank_period_free(struct sl_rank_period *period);

/* Its peaks count from here on: what is alive now is the lowest bound. */
void sl_rank_period_watch(struct sl_rank_period *period, const struct sl_block_totals *now, uint64_t device_used,
                          uint64_t at, uint64_t at_ns);

/* What is alive after an event of this phase (NULL: outside of all): a new highest point? */
void sl_rank_period_peak(struct sl_rank_period *period, const struct sl_block_totals *now, const struct sl_phase *phase,
                         uint64_t at, uint64_t at_ns);

/* Whether it would be, in any of the sums. */
bool sl_rank_period_rises(const struct sl_rank_period *period, const struct sl_block_totals *now);

/* A phase has ended in it, which may name it. */
void sl_rank_period_name(struct sl_rank_period *period, const struct sl_phase *phase, uint64_t at);

/* The log has ended: so has what went on. */
void sl_rank_period_names_end(struct sl_rank_period *period, struct sl_phases *phases, uint64_t at_ns);

/* Who holds its highest point, kept until it is written. 0 or -ENOMEM. */
int sl_rank_period_owner_add(struct sl_rank_period *period, const struct sl_memory_owner *owner);
void sl_rank_period_owners_clear(struct sl_rank_period *period);

#endif

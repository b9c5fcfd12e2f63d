/*
 * Where in the code a rank's allocations were made: sites as the log has them, and the place of each in its step. And
 * the program's own notes on them.
 */
#ifndef SHARDLEDGER_RANK_SITES_H
#define SHARDLEDGER_RANK_SITES_H

#include "storage/attribution/allocation.h"
#include "storage/code/site_places.h"
#include "storage/code/sites.h"

/* Zero-initialise; free with sl_rank_sites_free. */
struct sl_rank_sites {
  struct sl_sites *known;
  struct sl_site_places *places;
  const struct sl_log *log;
  const struct sl_user_rules *rules; /* what notes mean; NULL: nothing */
  struct {                           /* of the allocator event with this number, which comes next on its device */
    uint32_t sequence, site;
    uint32_t noted, note; /* likewise; a string's id */
  } next[SL_DEVICES_MAX];
  uint32_t last_note; /* whose rule is known */
  const struct sl_user_rule *last_rule;
  bool any; /* the log has sites */
};

/* rules: may be NULL; they stay the caller's. 0 or -ENOMEM. */
int sl_rank_sites_init(struct sl_rank_sites *sites, const struct sl_log *log, const struct sl_user_rules *rules);
void sl_rank_sites_free(struct sl_rank_sites *sites);

/* A frame, site, allocator_site or allocator_note event; others are ignored. 0, or -ENOMEM with the reason in error. */
int sl_rank_sites_event(struct sl_rank_sites *sites, const struct sl_event *event, struct sl_error *error);

/* Gives a new allocation its site and note; phase: innermost at its time, NULL outside of all. */
void sl_rank_sites_allocation(struct sl_rank_sites *sites, struct sl_allocation *a, struct sl_phase *phase);

/* The same of one that was there before recording began. */
void sl_rank_sites_existing(struct sl_rank_sites *sites, struct sl_allocation *a, uint32_t site);

/* Rows of the tables frame and site, once all allocations have theirs. 0 or a negative errno. */
int sl_rank_sites_write(const struct sl_rank_sites *sites, struct sl_ledger_writer *writer, struct sl_error *error);

#endif

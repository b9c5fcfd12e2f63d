/* Where in the code a rank's allocations were made: sites as the log has them, and the place of each in its step. */
#ifndef SHARDLEDGER_RANK_SITES_H
#define SHARDLEDGER_RANK_SITES_H

#include "storage/attribution/allocation.h"
#include "storage/code/site_places.h"
#include "storage/code/sites.h"

/* Zero-initialise; free with sl_rank_sites_free. */
struct sl_rank_sites {
  struct sl_sites *known;
  struct sl_site_places *places;
  struct { /* of the allocator event with this number, which comes next on its device */
    uint32_t sequence, site;
  } next[SL_DEVICES_MAX];
  bool any; /* the log has sites */
};

int sl_rank_sites_init(struct sl_rank_sites *sites, const struct sl_log *log); /* 0 or -ENOMEM */
void sl_rank_sites_free(struct sl_rank_sites *sites);

/* A frame, site or allocator_site event; others are ignored. 0, or -ENOMEM with the reason in error. */
int sl_rank_sites_event(struct sl_rank_sites *sites, const struct sl_event *event, struct sl_error *error);

/* Gives a new allocation its site; phase: innermost at its time, NULL outside of all. */
void sl_rank_sites_allocation(struct sl_rank_sites *sites, struct sl_allocation *a, struct sl_phase *phase);

#endif

/*
 * Places in a step, and the site that allocates at each: training repeats itself, so a site that was recorded in one
 * step holds for the allocation at the same place of every later step.
 *
 * A place is a phase (with its module, its call and the phases around it), the allocation's number in it, and its size:
 * the third allocation, of 4 MiB, in the first forward of blocks.3. Where sizes vary a place without its size counts,
 * too, when two steps or more were recorded and had the same site there. Where more differs nothing is said.
 */
#ifndef SHARDLEDGER_SITE_PLACES_H
#define SHARDLEDGER_SITE_PLACES_H

#include "storage/phases/phase.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_site_places;

struct sl_place_site {
  uint32_t site;  /* 0: none is known */
  int64_t step;   /* in which it was recorded */
  uint64_t place; /* its own number; 0: none */
};

struct sl_site_places *sl_site_places_new(void);                           /* NULL: no memory */
struct sl_site_places *sl_site_places_free(struct sl_site_places *places); /* NULL is fine; returns NULL */

/*
 * An allocation of a step, the nth (from 0) in this phase, innermost at its time. site: recorded for it; 0: none.
 * Returns the site that it has: its own, or that of its place in an earlier step.
 */
struct sl_place_site sl_site_places_site(struct sl_site_places *places, const struct sl_phase *phase, uint32_t nth,
                                         uint64_t requested_bytes, int64_t step, uint32_t site);

/*
 * Whether what was allocated at a place in this step, and outlived the step, was used after that: it was followed until
 * its free. And what is known of it: the step in which it was not, or -1: nothing, or it was used then in some step.
 */
void sl_site_places_outlived(struct sl_site_places *places, uint64_t place, int64_t step, bool used);
int64_t sl_site_places_unused(const struct sl_site_places *places, uint64_t place);

/* Whether memory ran out for a place: then later steps lack sites that they should have. */
bool sl_site_places_lack_memory(const struct sl_site_places *places);

#endif

/*
 * Who owns phases, and for how long.
 *
 * A phase is open until it is taken out (sl_phase_end), closed until the owner has written its row and prunes, and then
 * in memory only as long as a phase within it is. So three things may point to a phase:
 *   - what keeps track of the open ones, which forgets a phase before it is closed: ranges, module backwards, the step;
 *   - what the owner keeps of the step in progress, until it prunes: allocations, items of the sweep;
 *   - the phases within it, which are counted.
 * Nothing else may, whatever the order of a log's events is.
 */
#ifndef SHARDLEDGER_PHASE_LIST_H
#define SHARDLEDGER_PHASE_LIST_H

#include "phase.h"
#include "storage/spare.h"

/* Parents are looked through from the inside out. A phase deeper than this stands beside the one that it is in. */
enum { SL_PHASE_DEPTH_MAX = 512 };

struct sl_phase_list {
  struct sl_phase *first, *last; /* open, or closed and not pruned; owned */
  struct sl_phase *closed;       /* those among them that are closed */
  size_t closed_count;
  struct sl_spare spare;
  struct sl_phase **sorted; /* the same by id, while the owner looks at them; owned */
  uint64_t last_id;
};

/* Adds an open phase with these facts within its parent (NULL: in none). NULL: no memory. */
struct sl_phase *sl_phase_list_add(struct sl_phase_list *list, const struct sl_phase *facts, struct sl_phase *parent);

/* The phase has ended, and nothing that keeps track of open ones points to it any more. */
void sl_phase_list_close(struct sl_phase_list *list, struct sl_phase *phase);

/* Those that are closed and not pruned, by id; the array stays the list's, until the next call. 0 or -ENOMEM. */
int sl_phase_list_closed(struct sl_phase_list *list, struct sl_phase ***out, size_t *count);

/* Frees closed phases, once no phase within them is left. */
void sl_phase_list_prune(struct sl_phase_list *list);

void sl_phase_list_free(struct sl_phase_list *list); /* with all phases */

#endif

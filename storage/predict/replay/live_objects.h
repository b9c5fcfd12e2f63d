/*
 * What is alive while a tape is played. Each object is an allocation's; in a period that repeats another one it is one
 * like the other period's, until a row of its own says more.
 */
#ifndef SHARDLEDGER_LIVE_OBJECTS_H
#define SHARDLEDGER_LIVE_OBJECTS_H

#include "storage/predict/tape/tape.h"

struct sl_chosen_block;

struct sl_live_object {
  struct sl_chosen_block *block; /* NULL: free */
  uint32_t allocation;           /* of sl_tape.allocations */
  uint32_t number;               /* among those that were active when the period began, from the latest */
  bool freed;
  struct sl_live_object *older, *newer;
};

struct sl_live_objects;

/* NULL: no memory. Free it with sl_live_objects_free, which returns NULL. */
struct sl_live_objects *sl_live_objects_new(const struct sl_tape *tape);
struct sl_live_objects *sl_live_objects_free(struct sl_live_objects *objects);

/* A period begins; template: the one that it repeats, NULL: it has all its own events. 0 or -ENOMEM. */
int sl_live_period(struct sl_live_objects *objects, const struct sl_tape_period *period,
                   const struct sl_tape_period *template);

/*
 * An event: of the period itself, of the one that it repeats, or of both; UINT32_MAX where it is not. A new object is
 * of the first that is there. NULL: no memory (of a new one), or nobody knows which object the event is of.
 */
struct sl_live_object *sl_live_begin(struct sl_live_objects *objects, uint32_t own, uint32_t repeated);
struct sl_live_object *sl_live_find(struct sl_live_objects *objects, uint32_t own, uint32_t repeated, bool complete);
/* What is alive and what was freed, with its blocks, added to a signature (chooser.h). */
uint64_t sl_live_signature(const struct sl_live_objects *objects, uint64_t signature);
void sl_live_end(struct sl_live_objects *objects, struct sl_live_object *object);

#endif

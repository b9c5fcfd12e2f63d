/*
 * What the files of the chooser share; nobody else includes this.
 *
 *   chooser.c             requests, frees, splits and merges
 *   chooser_expandable.c  expandable segments: ranges of an address space that are mapped and unmapped
 *   chooser_return.c      what goes back to the driver: collection, retries, empty_cache
 *   free_tree.c           free blocks by size and address
 */
#ifndef SHARDLEDGER_CHOOSER_STATE_H
#define SHARDLEDGER_CHOOSER_STATE_H

#include "chooser.h"
#include "free_tree.h"
#include "plugin/format/events.h"

struct sl_expandable { /* an address space; pages of it are mapped */
  uint64_t address, bytes, page_bytes;
  struct sl_expandable *next; /* of all */
};

struct sl_shelf { /* free blocks of a place, of requests up to 1 MiB or of larger ones */
  struct sl_free_node *free;
  struct sl_chosen_block *unmapped; /* of expandable segments, by address, in a list */
  uint64_t stream;
  uint32_t pool;
  bool small;
};

struct sl_chosen_block {
  struct sl_free_node node; /* first: in its shelf's tree while it is free */
  uint64_t requested;
  uint64_t segment;                        /* address of the ordinary segment that it is in */
  uint64_t searches;                       /* of its pool when it became free */
  struct sl_chosen_block *previous, *next; /* neighbours in the segment */
  struct sl_chosen_block *before, *after;  /* in a list: of unmapped, of pending, or of spare ones */
  struct sl_expandable *expandable;        /* NULL: an ordinary segment's */
  struct sl_chosen_block **owner;          /* where the caller keeps it */
  uint32_t shelf;
  enum sl_block_state state;
  bool mapped;
};

struct sl_chooser {
  struct sl_chooser_options options;
  struct sl_block_totals totals;
  struct sl_shelf *shelves; /* two a place: small ones first */
  size_t shelf_count;
  uint64_t *searches; /* of free blocks, by 2 * pool + small: the clock of collections */
  size_t pools;
  struct sl_chosen_block *pending; /* freed, and not complete */
  struct sl_chosen_block *spare;   /* for new blocks */
  struct sl_chosen_block **chunks; /* all blocks' memory */
  size_t chunk_count;
  struct sl_expandable *spaces;
  uint64_t made, retries;
  struct sl_chooser_open open;
};

static inline struct sl_shelf *sl_shelf_of(const struct sl_chooser *c, const struct sl_chosen_block *block) {
  return &c->shelves[block->shelf];
}

static inline struct sl_chosen_block *sl_block_at(struct sl_free_node *node) {
  return (struct sl_chosen_block *)node;
}

static inline bool sl_collects(const struct sl_chooser *c) {
  return c->options.limit_bytes && c->options.config.collection_threshold > 0;
}

static inline bool sl_is_idle(const struct sl_chosen_block *block) { /* all of an ordinary segment */
  return block->state == SL_BLOCK_FREE && block->mapped && !block->previous && !block->next && !block->expandable;
}

/* chooser_blocks.c */
struct sl_chosen_block *sl_block_make(struct sl_chooser *c, uint32_t shelf, uint64_t address, uint64_t bytes);
void sl_block_discard(struct sl_chooser *c, struct sl_chosen_block *block); /* in no tree and no list any more */
void sl_block_shelve(struct sl_chooser *c, struct sl_chosen_block *block);
void sl_block_take(struct sl_chooser *c, struct sl_chosen_block *block);
void sl_unmapped_add(struct sl_chooser *c, struct sl_chosen_block *block); /* to the list of its shelf, by address */
void sl_unmapped_remove(struct sl_chooser *c, struct sl_chosen_block *block);
void sl_block_put_after(struct sl_chosen_block *block, struct sl_chosen_block *added);
void sl_block_join(struct sl_chooser *c, struct sl_chosen_block *block, struct sl_chosen_block *other);
void sl_choice_note(struct sl_chooser *c, const struct sl_chosen_block *block); /* in its tree: it is looked at */
void sl_choice_is_open(struct sl_chooser *c, const struct sl_shelf *shelf);

/* chooser_expandable.c: 0 with *out taken from its shelf; 1: no room; -ENOMEM. */
int sl_expandable_request(struct sl_chooser *c, uint32_t shelf, uint64_t bytes, struct sl_chosen_block **out);
int sl_expandable_unmap(struct sl_chooser *c, struct sl_chosen_block *block); /* the whole pages of a free one */
struct sl_chosen_block *sl_expandable_best(struct sl_chooser *c, struct sl_chosen_block *block);

/* chooser_return.c */
void sl_collect(struct sl_chooser *c);
bool sl_return_enough(struct sl_chooser *c, uint32_t shelf, uint64_t rounded);
int sl_return_all(struct sl_chooser *c); /* waits for all streams first */

#endif

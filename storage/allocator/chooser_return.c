/*
 * What goes back to the driver. An ordinary segment does when nothing in it is alive; of an expandable one the whole
 * pages of each free block.
 */
#include "chooser_state.h"

#include <errno.h>
#include <stdlib.h>

static void segment_return(struct sl_chooser *c, struct sl_chosen_block *block) {
  sl_block_take(c, block);
  c->totals.reserved_bytes -= block->node.bytes;
  c->options.source.gone(c->options.source.context, block->node.address);
  sl_block_discard(c, block);
}

/* By how many searches of its pool a free block is old. */
static uint64_t age_of(const struct sl_chooser *c, const struct sl_chosen_block *block) {
  const struct sl_shelf *shelf = sl_shelf_of(c, block);
  return c->searches[2 * shelf->pool + shelf->small] - block->searches;
}

/* Calls for each idle segment of large requests in the shared pool, which may go meanwhile. */
static void idle_visit(struct sl_chooser *c, void (*visit)(struct sl_chooser *, struct sl_chosen_block *, void *),
                       void *context) {
  for (size_t i = 0; i < c->shelf_count; i++) {
    if (c->shelves[i].small || c->shelves[i].pool)
      continue;
    for (struct sl_free_node *node = sl_free_tree_first(c->shelves[i].free), *next; node; node = next) {
      next = sl_free_tree_next(node);
      if (sl_is_idle(sl_block_at(node)))
        visit(c, sl_block_at(node), context);
    }
  }
}

struct collection {
  uint64_t age, count; /* of all that could go */
  double threshold;
  uint64_t bytes; /* that went */
};

static void age_add(struct sl_chooser *c, struct sl_chosen_block *block, void *context) {
  struct collection *collection = context;
  collection->age += age_of(c, block);
  collection->count++;
}

static void old_return(struct sl_chooser *c, struct sl_chosen_block *block, void *context) {
  struct collection *collection = context;
  if ((double)age_of(c, block) < collection->threshold)
    return;
  collection->bytes += block->node.bytes;
  collection->age -= age_of(c, block);
  collection->count--;
  segment_return(c, block);
}

/* Segments that were not used for longer than the others go, until enough has, or none is older than others. */
void sl_collect(struct sl_chooser *c) {
  const uint64_t most = (uint64_t)(c->options.config.collection_threshold * (double)c->options.limit_bytes);
  if (c->totals.reserved_bytes <= most)
    return;
  const uint64_t target = c->totals.reserved_bytes - most;
  struct collection collection = {0};
  idle_visit(c, age_add, &collection);
  for (bool any = true; any && collection.count && collection.bytes < target;) {
    const uint64_t before = collection.count;
    collection.threshold = (double)collection.age / (double)collection.count;
    idle_visit(c, old_return, &collection);
    any = collection.count < before;
  }
}

/* Under max_split_size: one cached block of its place that is large enough by itself, or the largest ones together. */
bool sl_return_enough(struct sl_chooser *c, uint32_t number, uint64_t rounded) {
  const uint64_t max_split = c->options.config.max_split_bytes, bytes = rounded < max_split ? max_split : rounded;
  struct sl_shelf *shelf = &c->shelves[number];
  if (max_split == UINT64_MAX)
    return false;
  struct sl_free_node *node = sl_free_tree_at_least(shelf->free, bytes), *previous;
  if (node)
    sl_choice_note(c, sl_block_at(node));
  if (node && sl_is_idle(sl_block_at(node))) {
    segment_return(c, sl_block_at(node));
    return true;
  }
  uint64_t returned = 0;
  for (node = sl_free_tree_last(shelf->free); node && returned < bytes && node->bytes >= max_split; node = previous) {
    previous = sl_free_tree_previous(node);
    sl_choice_note(c, sl_block_at(node));
    if (!sl_is_idle(sl_block_at(node)))
      break; /* of an expandable segment: it goes with all others */
    returned += node->bytes;
    segment_return(c, sl_block_at(node));
  }
  return returned >= bytes;
}

/* Unmapping changes trees, so the blocks are listed first. */
static int shelf_unmap(struct sl_chooser *c, uint32_t number) {
  struct sl_chosen_block **blocks = NULL;
  size_t count = 0;
  for (struct sl_free_node *node = sl_free_tree_first(c->shelves[number].free); node; node = sl_free_tree_next(node))
    count += sl_block_at(node)->expandable != NULL;
  if (!count)
    return 0;
  blocks = reallocarray(NULL, count, sizeof(struct sl_chosen_block *));
  if (!blocks)
    return -ENOMEM;
  count = 0;
  for (struct sl_free_node *node = sl_free_tree_first(c->shelves[number].free); node; node = sl_free_tree_next(node))
    if (sl_block_at(node)->expandable)
      blocks[count++] = sl_block_at(node);
  int r = 0;
  for (size_t i = 0; i < count && r == 0; i++)
    r = sl_expandable_unmap(c, blocks[i]);
  free(blocks);
  return r;
}

int sl_chooser_empty(struct sl_chooser *c, uint32_t pool) {
  int r = 0;
  for (uint32_t i = 0; i < c->shelf_count && r == 0; i++) {
    if (c->shelves[i].pool != pool)
      continue;
    for (struct sl_free_node *node = sl_free_tree_first(c->shelves[i].free), *next; node; node = next) {
      next = sl_free_tree_next(node);
      if (sl_is_idle(sl_block_at(node)))
        segment_return(c, sl_block_at(node));
    }
    r = shelf_unmap(c, i);
  }
  return r;
}

int sl_return_all(struct sl_chooser *c) {
  int r = 0;
  while (c->pending && r == 0)
    r = sl_chooser_complete(c, c->pending);
  return r < 0 ? r : sl_chooser_empty(c, 0);
}

uint64_t sl_chooser_idle_segments(const struct sl_chooser *c, uint32_t pool) {
  uint64_t count = 0;
  for (size_t i = 0; i < c->shelf_count; i++)
    for (struct sl_free_node *node = sl_free_tree_first(c->shelves[i].free); node; node = sl_free_tree_next(node))
      count += c->shelves[i].pool == pool && sl_is_idle(sl_block_at(node));
  return count;
}

int sl_chooser_give_back(struct sl_chooser *c, uint64_t address) {
  for (size_t i = 0; i < c->shelf_count; i++)
    for (struct sl_free_node *node = sl_free_tree_first(c->shelves[i].free); node; node = sl_free_tree_next(node))
      if (node->address == address && sl_is_idle(sl_block_at(node))) {
        segment_return(c, sl_block_at(node));
        return 0;
      }
  return 1;
}

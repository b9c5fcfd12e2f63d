/*
 * Blocks of a segment form a list in address order; free ones are in the tree of their shelf too. Free neighbours are
 * joined at once, so the rules of PyTorch's allocator need no more than these two.
 */
#include "chooser_state.h"

#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>

enum { CHUNK_BLOCKS = 256 };

static int chunk_add(struct sl_chooser *c) {
  struct sl_chosen_block **grown = sl_list_grow(c->chunks, c->chunk_count, sizeof *grown);
  if (!grown)
    return -ENOMEM;
  c->chunks = grown;
  struct sl_chosen_block *chunk = calloc(CHUNK_BLOCKS, sizeof *chunk);
  if (!chunk)
    return -ENOMEM;
  c->chunks[c->chunk_count++] = chunk;
  for (size_t i = 0; i < CHUNK_BLOCKS; i++) {
    chunk[i].node.priority = (uint32_t)(++c->made * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    chunk[i].after = c->spare;
    c->spare = &chunk[i];
  }
  return 0;
}

struct sl_chosen_block *sl_block_make(struct sl_chooser *c, uint32_t shelf, uint64_t address, uint64_t bytes) {
  if (!c->spare && chunk_add(c) < 0)
    return NULL;
  struct sl_chosen_block *block = c->spare;
  c->spare = block->after;
  *block = (struct sl_chosen_block){.node = {.bytes = bytes, .address = address, .priority = block->node.priority},
                                    .segment = address,
                                    .shelf = shelf,
                                    .mapped = true};
  return block;
}

void sl_block_discard(struct sl_chooser *c, struct sl_chosen_block *block) {
  block->after = c->spare;
  c->spare = block;
}

void sl_block_shelve(struct sl_chooser *c, struct sl_chosen_block *block) {
  struct sl_shelf *shelf = sl_shelf_of(c, block);
  block->state = SL_BLOCK_FREE;
  block->searches = c->searches[2 * shelf->pool + shelf->small];
  sl_free_tree_add(&shelf->free, &block->node);
}

void sl_block_take(struct sl_chooser *c, struct sl_chosen_block *block) {
  sl_free_tree_remove(&sl_shelf_of(c, block)->free, &block->node);
}

void sl_block_put_after(struct sl_chosen_block *block, struct sl_chosen_block *added) {
  added->previous = block;
  added->next = block->next;
  if (block->next)
    block->next->previous = added;
  block->next = added;
}

void sl_unmapped_add(struct sl_chooser *c, struct sl_chosen_block *block) {
  struct sl_chosen_block **link = &sl_shelf_of(c, block)->unmapped, *before = NULL;
  for (; *link && (*link)->node.address < block->node.address; link = &(*link)->after)
    before = *link;
  block->before = before;
  block->after = *link;
  if (block->after)
    block->after->before = block;
  *link = block;
}

void sl_unmapped_remove(struct sl_chooser *c, struct sl_chosen_block *block) {
  *(block->before ? &block->before->after : &sl_shelf_of(c, block)->unmapped) = block->after;
  if (block->after)
    block->after->before = block->before;
}

/* A block that is in no tree takes in a neighbour, where that is as free, and as mapped, as it is. */
void sl_block_join(struct sl_chooser *c, struct sl_chosen_block *block, struct sl_chosen_block *other) {
  if (!other || other->state != SL_BLOCK_FREE || other->mapped != block->mapped)
    return;
  if (other->mapped)
    sl_block_take(c, other);
  else
    sl_unmapped_remove(c, other);
  block->node.bytes += other->node.bytes;
  if (block->previous == other) {
    block->node.address = other->node.address;
    block->previous = other->previous;
    if (block->previous)
      block->previous->next = block;
  } else {
    block->next = other->next;
    if (block->next)
      block->next->previous = block;
  }
  sl_block_discard(c, other);
}

/* ---- choices ---- */

/*
 * Blocks of up to 1 MiB, and of expandable segments, are cut to what is asked for whatever they are cut from: only
 * where segments are given back for room do they decide what larger requests find.
 */
void sl_choice_is_open(struct sl_chooser *c, const struct sl_shelf *shelf) {
  const struct sl_chooser_options *options = &c->options;
  c->open.segments = true;
  if ((!shelf->small && !options->config.expandable_segments) || options->limit_bytes || options->capacity_bytes)
    c->open.sizes = true;
}

/* Whether it makes no difference which of two equal ones is taken, or the order of their addresses is known. */
static bool is_alike(const struct sl_chooser *c, const struct sl_chosen_block *a, const struct sl_chosen_block *b) {
  if (a->expandable || b->expandable)
    return a->expandable == b->expandable;
  return a->segment == b->segment || (sl_is_idle(a) && sl_is_idle(b) && !sl_collects(c)); /* by age, else */
}

void sl_choice_note(struct sl_chooser *c, const struct sl_chosen_block *block) {
  struct sl_free_node *own = (struct sl_free_node *)&block->node, *node;
  if (c->open.segments && c->open.sizes)
    return;
  for (node = sl_free_tree_next(own); node && node->bytes == own->bytes; node = sl_free_tree_next(node))
    if (!is_alike(c, block, sl_block_at(node))) {
      sl_choice_is_open(c, sl_shelf_of(c, block));
      return;
    }
  for (node = sl_free_tree_previous(own); node && node->bytes == own->bytes; node = sl_free_tree_previous(node))
    if (!is_alike(c, block, sl_block_at(node))) {
      sl_choice_is_open(c, sl_shelf_of(c, block));
      return;
    }
}

/* ---- the end of a request ---- */

int sl_chooser_complete(struct sl_chooser *c, struct sl_chosen_block *block) {
  if (!block || block->state != SL_BLOCK_PENDING)
    return 0;
  *(block->before ? &block->before->after : &c->pending) = block->after;
  if (block->after)
    block->after->before = block->before;
  c->totals.active_bytes -= block->node.bytes;
  c->totals.requested_bytes -= block->requested;
  *block->owner = NULL;
  sl_block_join(c, block, block->previous);
  sl_block_join(c, block, block->next);
  sl_block_shelve(c, block);
  return 0;
}

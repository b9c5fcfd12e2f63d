/* Requests and frees, by the rules of PyTorch's allocator. */
#include "chooser_state.h"

#include <errno.h>
#include <stdlib.h>

struct sl_chooser *sl_chooser_new(const struct sl_chooser_options *options) {
  struct sl_chooser *c = calloc(1, sizeof *c);
  if (c)
    c->options = *options;
  return c;
}

struct sl_chooser *sl_chooser_free(struct sl_chooser *c) {
  if (!c)
    return NULL;
  for (struct sl_expandable *space = c->spaces, *next; space; space = next) {
    next = space->next;
    free(space);
  }
  for (size_t i = 0; i < c->chunk_count; i++)
    free(c->chunks[i]);
  free(c->chunks);
  free(c->shelves);
  free(c->searches);
  free(c);
  return NULL;
}

void sl_chooser_limit(struct sl_chooser *c, uint64_t limit_bytes) {
  c->options.limit_bytes = limit_bytes;
}

static int pool_know(struct sl_chooser *c, uint32_t pool) {
  if (pool < c->pools)
    return 0;
  uint64_t *grown = reallocarray(c->searches, (size_t)pool + 1, 2 * sizeof *grown);
  if (!grown)
    return -ENOMEM;
  c->searches = grown;
  for (; c->pools <= pool; c->pools++)
    grown[2 * c->pools] = grown[2 * c->pools + 1] = 0;
  return 0;
}

int sl_chooser_place(struct sl_chooser *c, uint64_t stream, uint32_t pool, uint32_t *out) {
  for (size_t i = 0; i < c->shelf_count; i += 2)
    if (c->shelves[i].stream == stream && c->shelves[i].pool == pool) {
      *out = (uint32_t)(i / 2);
      return 0;
    }
  struct sl_shelf *grown = reallocarray(c->shelves, c->shelf_count + 2, sizeof *grown);
  if (!grown)
    return -ENOMEM;
  c->shelves = grown;
  if (pool_know(c, pool) < 0)
    return -ENOMEM;
  grown[c->shelf_count] = (struct sl_shelf){.stream = stream, .pool = pool, .small = true};
  grown[c->shelf_count + 1] = (struct sl_shelf){.stream = stream, .pool = pool};
  *out = (uint32_t)(c->shelf_count / 2);
  c->shelf_count += 2;
  return 0;
}

/* ---- a request ---- */

/* A free block that serves it, taken from its shelf; NULL: none. */
static struct sl_chosen_block *cached_find(struct sl_chooser *c, uint32_t number, uint64_t rounded) {
  struct sl_shelf *shelf = &c->shelves[number];
  const uint64_t max_split = c->options.config.max_split_bytes;
  if (sl_collects(c))
    c->searches[2 * shelf->pool + shelf->small]++;
  struct sl_chosen_block *block = sl_block_at(sl_free_tree_at_least(shelf->free, rounded));
  if (block)
    sl_choice_note(c, block);
  if (block && block->expandable)
    block = sl_expandable_best(c, block);
  if (!block || (rounded < max_split && block->node.bytes >= max_split) ||
      (rounded >= max_split && block->node.bytes - rounded >= c->options.config.max_rounding_bytes))
    return NULL;
  sl_block_take(c, block);
  return block;
}

/* A new segment; 0, 1: there is no room, or -ENOMEM. */
static int segment_request(struct sl_chooser *c, uint32_t number, uint64_t rounded, struct sl_chosen_block **out) {
  const struct sl_chooser_options *options = &c->options;
  const struct sl_shelf *shelf = &c->shelves[number];
  const uint64_t bytes = sl_allocator_segment(&options->config, rounded), after = c->totals.reserved_bytes + bytes;
  if (options->limit_bytes && after > options->limit_bytes)
    return 1;
  if (options->config.expandable_segments)
    return sl_expandable_request(c, number, rounded, out);
  if (options->capacity_bytes && after > options->capacity_bytes)
    return 1;
  const uint64_t address = options->source.place(options->source.context, shelf->stream, shelf->pool, bytes, false);
  *out = sl_block_make(c, number, address, bytes);
  if (!*out)
    return -ENOMEM;
  c->totals.reserved_bytes = after;
  return 0;
}

static int block_find(struct sl_chooser *c, uint32_t shelf, uint64_t rounded, struct sl_chosen_block **out) {
  *out = cached_find(c, shelf, rounded);
  if (*out)
    return 0;
  if (sl_collects(c))
    sl_collect(c);
  int r = segment_request(c, shelf, rounded, out);
  if (r == 1 && sl_return_enough(c, shelf, rounded))
    r = segment_request(c, shelf, rounded, out);
  if (r != 1)
    return r;
  c->retries++;
  r = sl_return_all(c);
  return r < 0 ? r : segment_request(c, shelf, rounded, out);
}

/* Cuts what the request does not need off the end of a block, as a free one. */
static int block_split(struct sl_chooser *c, struct sl_chosen_block *block, uint64_t bytes) {
  struct sl_chosen_block *rest = sl_block_make(c, block->shelf, block->node.address + bytes, block->node.bytes - bytes);
  if (!rest)
    return -ENOMEM;
  rest->expandable = block->expandable;
  rest->segment = block->segment;
  block->node.bytes = bytes;
  sl_block_put_after(block, rest);
  sl_block_shelve(c, rest);
  return 0;
}

static void block_hand_out(struct sl_chooser *c, struct sl_chosen_block *block, uint64_t requested,
                           struct sl_chosen_block **out) {
  block->state = SL_BLOCK_ALLOCATED;
  block->requested = requested;
  block->owner = out;
  *out = block;
  c->totals.allocated_bytes += block->node.bytes;
  c->totals.active_bytes += block->node.bytes;
  c->totals.requested_bytes += requested;
}

int sl_chooser_request(struct sl_chooser *c, uint32_t place, uint64_t requested, struct sl_chosen_block **out) {
  const uint64_t rounded = sl_allocator_round(&c->options.config, requested);
  const uint32_t shelf = 2 * place + (rounded > SL_ALLOCATOR_SMALL_BYTES);
  struct sl_chosen_block *block = NULL;
  *out = NULL;
  int r = block_find(c, shelf, rounded, &block);
  if (r != 0)
    return r;
  if (sl_allocator_splits(&c->options.config, block->node.bytes, rounded) && block_split(c, block, rounded) < 0) {
    sl_block_shelve(c, block);
    return -ENOMEM;
  }
  block_hand_out(c, block, requested, out);
  return 0;
}

/* ---- its end ---- */

void sl_chooser_release(struct sl_chooser *c, struct sl_chosen_block *block) {
  if (!block || block->state != SL_BLOCK_ALLOCATED)
    return;
  block->state = SL_BLOCK_PENDING;
  block->before = NULL;
  block->after = c->pending;
  if (c->pending)
    c->pending->before = block;
  c->pending = block;
  c->totals.allocated_bytes -= block->node.bytes;
}

struct sl_chooser_open sl_chooser_open(const struct sl_chooser *c) {
  return c->open;
}

/* ---- what was there before ---- */

int sl_chooser_restore_segment(struct sl_chooser *c, uint32_t place, uint64_t address, uint64_t bytes, bool small) {
  struct sl_chosen_block *block = sl_block_make(c, 2 * place + !small, address, bytes);
  if (!block)
    return -ENOMEM;
  c->totals.reserved_bytes += bytes;
  sl_block_shelve(c, block);
  return 0;
}

/* The free block that holds [address, address + bytes). Walks all of them: only what was there before needs it. */
static struct sl_chosen_block *free_around(const struct sl_chooser *c, uint64_t address, uint64_t bytes) {
  for (size_t i = 0; i < c->shelf_count; i++)
    for (struct sl_free_node *node = sl_free_tree_first(c->shelves[i].free); node; node = sl_free_tree_next(node))
      if (node->address <= address && address - node->address <= node->bytes - bytes && bytes <= node->bytes)
        return sl_block_at(node);
  return NULL;
}

int sl_chooser_restore_block(struct sl_chooser *c, uint64_t address, uint64_t bytes, uint64_t requested,
                             struct sl_chosen_block **out) {
  struct sl_chosen_block *block = free_around(c, address, bytes);
  if (!block || !bytes)
    return -EINVAL;
  sl_block_take(c, block);
  if (block->node.address < address) {
    const uint64_t before = address - block->node.address;
    if (block_split(c, block, before) < 0)
      return -ENOMEM;
    struct sl_chosen_block *rest = block->next;
    sl_block_shelve(c, block);
    sl_block_take(c, rest);
    block = rest;
  }
  if (block->node.bytes > bytes && block_split(c, block, bytes) < 0)
    return -ENOMEM;
  block_hand_out(c, block, requested, out);
  return 0;
}

const struct sl_block_totals *sl_chooser_totals(const struct sl_chooser *c) {
  return &c->totals;
}

uint64_t sl_chosen_bytes(const struct sl_chosen_block *block) {
  return block->node.bytes;
}

uint64_t sl_chosen_address(const struct sl_chosen_block *block) {
  return block->node.address;
}

uint64_t sl_chooser_signature(const struct sl_chooser *c) {
  uint64_t signature = sl_signature_add(c->totals.reserved_bytes, c->totals.active_bytes);
  for (size_t i = 0; i < c->shelf_count; i++) {
    signature = sl_signature_add(signature, i);
    for (struct sl_free_node *node = sl_free_tree_first(c->shelves[i].free); node; node = sl_free_tree_next(node))
      signature = sl_signature_add(sl_signature_add(signature, node->address), node->bytes);
  }
  return signature;
}

uint64_t sl_chooser_retries(const struct sl_chooser *c) {
  return c->retries;
}

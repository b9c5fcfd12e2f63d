/*
 * Expandable segments: one large address space a place, of which pages are mapped as they are needed. Its blocks are
 * mapped (free or alive) or unmapped; neighbours of one kind are one.
 *
 *   │ alive │ free │ unmapped │ alive │ unmapped …                        │
 */
#include "chooser_state.h"

#include <errno.h>
#include <stdlib.h>

#define ADDRESS_SPACE (UINT64_C(1) << 40) /* where the device's memory is not known */

static void unmapped_add(struct sl_chooser *c, struct sl_chosen_block *block) {
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

/* A block counts as large as it could grow. */
static uint64_t grown_bytes(const struct sl_chosen_block *block) {
  return block->node.bytes + (block->next && !block->next->mapped ? block->next->node.bytes : 0);
}

/* From the smallest one that is large enough: the next larger ones, as long as these could grow to less. */
struct sl_chosen_block *sl_expandable_best(struct sl_chooser *c, struct sl_chosen_block *block) {
  if (!c->options.config.expandable_segments)
    return block;
  for (struct sl_free_node *next; block->expandable && (next = sl_free_tree_next(&block->node)) &&
                                  grown_bytes(sl_block_at(next)) < grown_bytes(block);) {
    block = sl_block_at(next);
    sl_choice_note(c, block);
  }
  return block;
}

static bool has_room(const struct sl_chosen_block *block, uint64_t bytes) {
  uint64_t room = 0;
  for (; block && room < bytes && block->state == SL_BLOCK_FREE; block = block->next)
    room += block->node.bytes;
  return room >= bytes;
}

static struct sl_chosen_block *space_make(struct sl_chooser *c, uint32_t number) {
  const struct sl_shelf *shelf = &c->shelves[number];
  const uint64_t page = shelf->small ? sl_allocator_segment(&c->options.config, SL_ALLOCATOR_MIN_BLOCK)
                                     : c->options.config.large_segment_bytes;
  const uint64_t wanted =
      c->options.device_bytes ? c->options.device_bytes + c->options.device_bytes / 8 : ADDRESS_SPACE;
  const uint64_t bytes = (wanted + page - 1) / page * page;
  struct sl_expandable *space = malloc(sizeof *space);
  struct sl_chosen_block *block = space ? sl_block_make(c, number, 0, bytes) : NULL;
  if (!block) {
    free(space);
    return NULL;
  }
  const uint64_t address = c->options.source.place(c->options.source.context, shelf->stream, shelf->pool, bytes, true);
  *space = (struct sl_expandable){.address = address, .bytes = bytes, .page_bytes = page, .next = c->spaces};
  c->spaces = space;
  block->node.address = address;
  block->expandable = space;
  block->mapped = false;
  unmapped_add(c, block);
  return block;
}

/* The lowest free address space of the place that has room, from an unmapped block or the free one before it. */
static struct sl_chosen_block *room_find(struct sl_chooser *c, uint32_t number, uint64_t bytes) {
  for (struct sl_chosen_block *block = c->shelves[number].unmapped; block; block = block->after) {
    if (block->expandable != c->shelves[number].unmapped->expandable)
      sl_choice_is_open(c, &c->shelves[number]); /* of several spaces, nobody knows which is the lowest */
    struct sl_chosen_block *first =
        block->previous && block->previous->state == SL_BLOCK_FREE ? block->previous : block;
    if (has_room(first, bytes))
      return first;
  }
  return space_make(c, number);
}

/* Maps the pages that the first bytes of an unmapped block lie in; *block is then the free one that it has become. */
static int map(struct sl_chooser *c, struct sl_chosen_block **block, uint64_t bytes) {
  struct sl_chosen_block *mapped = *block;
  const uint64_t page = mapped->expandable->page_bytes, pages = (bytes + page - 1) / page * page;
  if (c->options.capacity_bytes && c->totals.reserved_bytes + pages > c->options.capacity_bytes)
    return 1;
  if (pages < mapped->node.bytes) {
    struct sl_chosen_block *rest =
        sl_block_make(c, mapped->shelf, mapped->node.address + pages, mapped->node.bytes - pages);
    if (!rest)
      return -ENOMEM;
    rest->expandable = mapped->expandable;
    rest->mapped = false;
    sl_unmapped_remove(c, mapped);
    mapped->node.bytes = pages;
    sl_block_put_after(mapped, rest);
    unmapped_add(c, rest);
  } else {
    sl_unmapped_remove(c, mapped);
  }
  mapped->mapped = true;
  c->totals.reserved_bytes += pages;
  sl_block_join(c, mapped, mapped->previous);
  sl_block_join(c, mapped, mapped->next);
  sl_block_shelve(c, mapped);
  return 0;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

int sl_expandable_request(struct sl_chooser *c, uint32_t shelf, uint64_t bytes, struct sl_chosen_block **out) {
  struct sl_chosen_block *block = room_find(c, shelf, bytes);
  if (!block)
    return -ENOMEM;
  int r = block->mapped ? 0 : map(c, &block, smaller(block->node.bytes, bytes));
  while (r == 0 && block->node.bytes < bytes) {
    struct sl_chosen_block *more = block->next;
    if (!more || more->mapped)
      return 1; /* more than a whole address space */
    r = map(c, &more, smaller(bytes - block->node.bytes, more->node.bytes));
    block = more;
  }
  if (r == 0) {
    sl_block_take(c, block);
    *out = block;
  }
  return r;
}

/* The part of a free block before its unmapped pages, or after them, stays as a free one. */
static int part_keep(struct sl_chooser *c, struct sl_chosen_block *block, uint64_t address, uint64_t bytes,
                     bool before) {
  if (!bytes)
    return 0;
  struct sl_chosen_block *part = sl_block_make(c, block->shelf, address, bytes);
  if (!part)
    return -ENOMEM;
  part->expandable = block->expandable;
  if (!before) {
    sl_block_put_after(block, part);
  } else {
    part->next = block;
    part->previous = block->previous;
    if (part->previous)
      part->previous->next = part;
    block->previous = part;
  }
  sl_block_shelve(c, part);
  return 0;
}

int sl_expandable_unmap(struct sl_chooser *c, struct sl_chosen_block *block) {
  struct sl_expandable *space = block->expandable;
  const uint64_t page = space->page_bytes, from = block->node.address - space->address;
  const uint64_t until = from + block->node.bytes;
  const uint64_t begin = (from + page - 1) / page * page, end = until / page * page;
  if (begin >= end)
    return 0;
  sl_block_take(c, block);
  int r = part_keep(c, block, block->node.address, begin - from, true);
  if (r == 0)
    r = part_keep(c, block, space->address + end, until - end, false);
  if (r < 0)
    return r;
  block->node.address = space->address + begin;
  block->node.bytes = end - begin;
  block->mapped = false;
  c->totals.reserved_bytes -= end - begin;
  sl_block_join(c, block, block->previous);
  sl_block_join(c, block, block->next);
  if (block->previous || block->next) {
    unmapped_add(c, block);
    return 0;
  }
  c->options.source.gone(c->options.source.context, space->address);
  struct sl_expandable **link = &c->spaces;
  while (*link != space)
    link = &(*link)->next;
  *link = space->next;
  free(space);
  sl_block_discard(c, block);
  return 0;
}

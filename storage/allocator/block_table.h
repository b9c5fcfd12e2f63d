/*
 * The blocks of a device, found by their first byte. The replay asks for one with every event, and each step adds and
 * takes out thousands: so a block is one line of the cache with its place in the table, and nothing is kept of an
 * order.
 */
#ifndef SHARDLEDGER_BLOCK_TABLE_H
#define SHARDLEDGER_BLOCK_TABLE_H

#include "plugin/format/events.h"
#include "storage/hash_table.h"
#include "storage/spare.h"

#include <stddef.h>
#include <stdint.h>

struct block {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested;
  uint32_t place;
  enum sl_block_state state;
  struct block *previous, *next; /* neighbours in the segment, NULL at its ends */
  void *user;
  struct block *below; /* in its list of the table */
};

enum { LISTS_FIRST = 64 };

struct block_table {    /* zero: empty */
  struct block **lists; /* owned; a power of two of them */
  size_t list_count, count;
  struct sl_spare spare; /* of blocks */
};

static inline struct block **block_table_list(const struct block_table *table, uint64_t address) {
  return &table->lists[sl_hash_number(&address, sizeof address) & (table->list_count - 1)];
}

static inline struct block *block_table_find(const struct block_table *table, uint64_t address) {
  struct block *block = table->list_count ? *block_table_list(table, address) : NULL;
  while (block && block->address != address)
    block = block->below;
  return block;
}

/* Any block, or the one after it, until all were there; NULL: that was the last. The table must be as it was. */
static inline struct block *block_table_next(const struct block_table *table, const struct block *block) {
  if (block && block->below)
    return block->below;
  struct block **end = table->lists + table->list_count;
  struct block **list = block ? block_table_list(table, block->address) + 1 : table->lists;
  while (list < end && !*list)
    list++;
  return list < end ? *list : NULL;
}

/* Twice as many lists. Without memory for them the lists are longer. */
static inline void block_table_grow(struct block_table *table) {
  struct block_table larger = *table;
  larger.list_count = table->list_count ? 2 * table->list_count : LISTS_FIRST;
  larger.lists = calloc(larger.list_count, sizeof(struct block *));
  if (!larger.lists)
    return;
  for (struct block *block = block_table_next(table, NULL), *next; block; block = next) {
    next = block_table_next(table, block);
    struct block **list = block_table_list(&larger, block->address);
    block->below = *list;
    *list = block;
  }
  free(table->lists);
  *table = larger;
}

/* A block of which nothing is known but where it begins. NULL: no memory. */
static inline struct block *block_table_add(struct block_table *table, uint64_t address) {
  if (table->count >= table->list_count)
    block_table_grow(table);
  struct block *block = table->list_count ? sl_spare_take(&table->spare, sizeof *block) : NULL;
  if (!block)
    return NULL;
  struct block **list = block_table_list(table, address);
  *block = (struct block){.address = address, .below = *list};
  *list = block;
  table->count++;
  return block;
}

static inline void block_table_remove(struct block_table *table, struct block *block) {
  struct block **at = block_table_list(table, block->address);
  while (*at != block)
    at = &(*at)->below;
  *at = block->below;
  table->count--;
  sl_spare_give(&table->spare, block);
}

static inline void block_table_free(struct block_table *table) {
  for (size_t i = 0; i < table->list_count; i++)
    for (struct block *block = table->lists[i], *below; block; block = below) {
      below = block->below;
      free(block);
    }
  free(table->lists);
  sl_spare_free(&table->spare);
  *table = (struct block_table){0};
}

#endif

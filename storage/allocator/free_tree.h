/*
 * Free blocks in the order in which PyTorch's allocator looks for one: by size, equal ones by address. A treap: a
 * search tree by key, a heap by priorities that look random, so that it stays flat whatever comes.
 */
#ifndef SHARDLEDGER_FREE_TREE_H
#define SHARDLEDGER_FREE_TREE_H

#include <stdint.h>

/* Part of who is in a tree. bytes and address must not change while it is. */
struct sl_free_node {
  uint64_t bytes, address;
  struct sl_free_node *left, *right, *parent;
  uint32_t priority; /* set by the owner, once; any number, different ones are better */
};

void sl_free_tree_add(struct sl_free_node **root, struct sl_free_node *node);
void sl_free_tree_remove(struct sl_free_node **root, struct sl_free_node *node);

/* The first of at least so many bytes; NULL: none. */
struct sl_free_node *sl_free_tree_at_least(struct sl_free_node *root, uint64_t bytes);

struct sl_free_node *sl_free_tree_first(struct sl_free_node *root);
struct sl_free_node *sl_free_tree_last(struct sl_free_node *root);
struct sl_free_node *sl_free_tree_next(struct sl_free_node *node);
struct sl_free_node *sl_free_tree_previous(struct sl_free_node *node);

#endif

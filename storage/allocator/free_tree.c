/* Free blocks by size and address, in a treap. */
#include "free_tree.h"

#include <stdbool.h>
#include <stddef.h>

static bool comes_before(const struct sl_free_node *a, const struct sl_free_node *b) {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

/* Where the parent, or the tree, points to the node. */
static struct sl_free_node **link_of(struct sl_free_node **root, struct sl_free_node *node) {
  if (!node->parent)
    return root;
  return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

/* A node changes places with its parent. */
static void lift(struct sl_free_node **root, struct sl_free_node *node) {
  struct sl_free_node *parent = node->parent, **link = link_of(root, parent), *inner;
  if (parent->left == node) {
    inner = parent->left = node->right;
    node->right = parent;
  } else {
    inner = parent->right = node->left;
    node->left = parent;
  }
  if (inner)
    inner->parent = parent;
  node->parent = parent->parent;
  parent->parent = node;
  *link = node;
}

void sl_free_tree_add(struct sl_free_node **root, struct sl_free_node *node) {
  struct sl_free_node **link = root, *parent = NULL;
  while (*link) {
    parent = *link;
    link = comes_before(node, parent) ? &parent->left : &parent->right;
  }
  *link = node;
  node->parent = parent;
  node->left = node->right = NULL;
  while (node->parent && node->parent->priority < node->priority)
    lift(root, node);
}

void sl_free_tree_remove(struct sl_free_node **root, struct sl_free_node *node) {
  while (node->left && node->right)
    lift(root, node->left->priority > node->right->priority ? node->left : node->right);
  struct sl_free_node *child = node->left ? node->left : node->right;
  *link_of(root, node) = child;
  if (child)
    child->parent = node->parent;
  node->left = node->right = node->parent = NULL;
}

struct sl_free_node *sl_free_tree_at_least(struct sl_free_node *root, uint64_t bytes) {
  struct sl_free_node *found = NULL;
  while (root) {
    if (root->bytes >= bytes) {
      found = root;
      root = root->left;
    } else {
      root = root->right;
    }
  }
  return found;
}

struct sl_free_node *sl_free_tree_first(struct sl_free_node *root) {
  while (root && root->left)
    root = root->left;
  return root;
}

struct sl_free_node *sl_free_tree_last(struct sl_free_node *root) {
  while (root && root->right)
    root = root->right;
  return root;
}

struct sl_free_node *sl_free_tree_next(struct sl_free_node *node) {
  if (node->right)
    return sl_free_tree_first(node->right);
  while (node->parent && node->parent->right == node)
    node = node->parent;
  return node->parent;
}

struct sl_free_node *sl_free_tree_previous(struct sl_free_node *node) {
  if (node->left)
    return sl_free_tree_last(node->left);
  while (node->parent && node->parent->left == node)
    node = node->parent;
  return node->parent;
}

/*
 * The segments of PyTorch's caching allocator at one instant, and what is in them: from the ledger, exact to the byte.
 *
 *   struct sl_segment_map *map = NULL;
 *   r = sl_segment_maps_read(db, rank, device, &at_ns, 1, &map, error);
 *   …
 *   map = sl_segment_map_free(map);
 *
 * What the driver takes back is a part: a segment as a whole, but each mapped piece of an expandable one by itself. A
 * part without live memory can be returned; one live block keeps all of it.
 */
#ifndef SHARDLEDGER_SEGMENT_MAP_H
#define SHARDLEDGER_SEGMENT_MAP_H

#include "storage/tables/db.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SL_SEGMENT_CELLS = 32 };

struct sl_map_segment {
  int64_t address, bytes, stream;
  bool small, expandable; /* small: of the pool for requests of at most 1 MiB */
  const char *pool;       /* of a CUDA graph or MemPool; NULL: the shared one */
  int64_t blocks;         /* live ones: allocated, or pending */
  int64_t allocated_bytes, pending_bytes, largest_free_bytes;
  int64_t returnable_bytes; /* in parts without a live block */
  int64_t kept_bytes;       /* free, in parts with one, and all that is free in private pools */
  int64_t thin_bytes;       /* of these, in parts of which less than a tenth is live */
  int64_t keeper;           /* allocation.id of the live block that goes last; 0: none */
  /*
   * The segment drawn from its start to its end: the letter of what has most of a cell, lower case where less than half
   * of the cell is live; '.' is free, '~' pending.
   */
  char drawn[SL_SEGMENT_CELLS + 1];
};

struct sl_map_category {
  const char *name;
  char letter;
  int64_t bytes; /* allocated, in segments */
};

struct sl_segment_map {
  struct sl_map_segment *segments; /* most kept bytes first, then most returnable ones */
  size_t count;
  struct sl_map_category *categories; /* most bytes first */
  size_t category_count;
  int64_t reserved_bytes, allocated_bytes, pending_bytes;
  int64_t outside_bytes; /* allocated or pending, in no segment that was recorded */
  struct sl_segment_map_texts *texts;
};

/*
 * One map for each of `count` instants, which do not go back, in one pass over the ledger. out[i] owns all of its own;
 * on failure they are all NULL. 0 or a negative errno.
 */
int sl_segment_maps_read(struct sl_db *db, int64_t rank, int64_t device, const int64_t *at_ns, size_t count,
                         struct sl_segment_map **out, struct sl_error *error);
struct sl_segment_map *sl_segment_map_free(struct sl_segment_map *map); /* returns NULL */

#endif

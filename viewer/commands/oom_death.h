/* A death that `shardledger oom` speaks of, and SQL that its files share. */
#ifndef SHARDLEDGER_OOM_DEATH_H
#define SHARDLEDGER_OOM_DEATH_H

#include "commands/peak_queries.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct sl_death {
  int64_t rank, at_ns;  /* at_ns -1: the log's end */
  int64_t step;         /* -1: outside steps */
  int64_t phase;        /* innermost; 0: none */
  int64_t wanted_bytes; /* from the driver: of PyTorch's allocator the segment, which its message names */
  int64_t requested_bytes, free_bytes, cached_bytes, allocated_bytes, reserved_bytes, largest_free_bytes;
  int64_t other_bytes; /* of the device, of neither this process nor explained */
  int64_t requests, ranks;
  char source[64], reason[16];
  bool free_known, allocated_known, reserved_known, clean, deadly;
};

/*
 * Why a request did not fit, from its row (alias o): the cache would have been enough; the device was not full, so a
 * limit of the process was; others hold what is missing; or too much is live. Of the driver the allocator wants a whole
 * segment for it, whose bytes PyTorch's message names; segment_bytes is the function below.
 */
#define SL_SQL_OTHERS                                                                                                  \
  "coalesce((SELECT sum(b.bytes) FROM device_owner AS b WHERE b.rank = o.rank AND b.at_ns = o.at_ns"                   \
  " AND b.device = o.device AND b.owner IN ('other_processes', 'unexplained')), 0)"
#define SL_SQL_WANTED                                                                                                  \
  "iif(o.source = 'allocator', segment_bytes(o.requested_bytes, (SELECT r.allocator_config FROM rank AS r WHERE"       \
  " r.rank = o.rank)), o.requested_bytes)"
#define SL_SQL_REASON                                                                                                  \
  "CASE WHEN o.source <> 'allocator' AND o.reserved_bytes - o.active_bytes >= o.requested_bytes THEN 'cached'"         \
  " WHEN o.free_bytes >= " SL_SQL_WANTED " THEN 'limit'"                                                               \
  " WHEN o.reserved_bytes - o.active_bytes >= o.requested_bytes"                                                       \
  "  OR o.reserved_bytes - o.active_bytes + o.free_bytes >= " SL_SQL_WANTED " THEN 'fragmentation'"                    \
  " WHEN " SL_SQL_OTHERS " >= o.requested_bytes THEN 'others' ELSE 'live' END"

/* What lived then, in groups; :at NULL is the log's end. */
#define SL_SQL_LIVE                                                                                                    \
  "live AS (SELECT category, detail, module_id, bytes, allocations FROM oom_owner WHERE rank = :rank AND at_ns = :at"  \
  " UNION ALL SELECT category, detail, module_id, sum(bytes), count(*) FROM allocation"                                \
  "  WHERE :at IS NULL AND rank = :rank AND free_ns IS NULL GROUP BY category, detail, module_id)"

/* Gives SL_SQL_WANTED and SL_SQL_REASON their function. 0 or a negative errno. */
int sl_add_segment_function(struct sl_db *db, struct sl_error *error);

/* The parameters of the SQL about one: :rank, and :at, NULL for the log's end. */
static inline void sl_bind_death(struct sl_statement *statement, const struct sl_death *death) {
  sl_bind_named_int(statement, ":rank", death->rank);
  sl_bind_optional(statement, ":at", death->at_ns);
}

/*
 * PyTorch takes a free block that fits before it asks the driver, but only one of the request's own stream and pool,
 * and none that max_split_size_mb keeps whole.
 */
static inline bool sl_is_block_of_others(const struct sl_death *death) {
  return strcmp(death->source, "allocator") == 0 && death->reserved_known &&
         death->largest_free_bytes >= death->requested_bytes;
}

#endif

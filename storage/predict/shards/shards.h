/*
 * What FSDP2 makes of a model's parameters, from their shapes. A unit of T parameters of which each has d rows of r
 * elements is split over N ranks, row by row: each rank's part of a parameter is padded to c = ceil(d / N) rows.
 *
 *   shard            c·r elements of the stored type                          for each parameter
 *   cast             sum of c·r, of param_dtype                               only where that is not the stored type
 *   gather buffer    sum of N·c·r, of param_dtype
 *   gathered         N·c·r, of param_dtype                                    for each parameter
 *   copy table       8·(4T + 1 + blocks) bytes: what the copying kernel is told
 *   reduce input     sum of N·c·r over trained ones, of reduce_dtype
 *   reduce table     8·(6T + 2 + blocks) bytes likewise
 *   reduce output    sum of c·r over trained ones, of reduce_dtype; once more where the stored type is another one
 *
 * Blocks are of 2 KiB of each part; where a copy would need more of them than four times what the device runs at once,
 * they are larger. With one rank nothing of this is so: FSDP2 copies instead.
 */
#ifndef SHARDLEDGER_SHARDS_H
#define SHARDLEDGER_SHARDS_H

#include "storage/error.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_shard_parameter {
  char *name;
  char dtype[24];
  int64_t number, unit, place; /* unit: its module's id, 0: none */
  uint64_t rows, row_elements; /* whole; of a single number 1 and 1 */
  uint64_t local_rows;         /* of this rank's part */
  uint64_t element_bytes;      /* 0: a type that is not known */
  uint64_t ranks;              /* that its rows are split over, 1: it is whole; 0: split in another way */
  bool is_trained, is_offloaded;
};

struct sl_shard_unit {
  int64_t module;
  uint64_t ranks, replicas, reshard_ranks, groups;
  char param_dtype[24], reduce_dtype[24]; /* "": as stored */
  bool is_offloaded;
  uint32_t *parameters; /* of sl_shards.parameters, in the order in which they are gathered */
  size_t count;
};

struct sl_shard_group { /* of an optimizer's parameters */
  int64_t optimizer;
  uint32_t *parameters; /* of sl_shards.parameters, trained ones only */
  size_t count;
  bool is_whole; /* all that it has are known */
};

struct sl_shards {
  uint32_t rank;
  uint64_t multiprocessors, multiprocessor_threads; /* 0: not recorded */
  struct sl_shard_parameter *parameters;
  size_t parameter_count;
  struct sl_shard_unit *units;
  size_t unit_count;
  struct sl_shard_group *groups;
  size_t group_count;
};

/* Of a rank; free it with sl_shards_free. 0 (there may be none), or a negative errno. */
int sl_shards_read(struct sl_db *db, uint32_t rank, struct sl_shards *out, struct sl_error *error);
void sl_shards_free(struct sl_shards *shards);

struct sl_shard_unit *sl_shards_unit(const struct sl_shards *shards, int64_t module); /* NULL: none */
uint64_t sl_dtype_bytes(const char *dtype);                                           /* 0: not known */

/* Elements of a parameter's part: as padded, and as the optimizer sees it. */
uint64_t sl_shard_padded(const struct sl_shard_parameter *parameter, uint64_t ranks);
uint64_t sl_shard_own(const struct sl_shard_parameter *parameter, uint64_t ranks, uint64_t rank);

/* Bytes, by the table above. */
uint64_t sl_unit_cast(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);
uint64_t sl_unit_gather(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);
uint64_t sl_unit_gathered(const struct sl_shards *shards, const struct sl_shard_unit *unit, size_t place,
                          uint64_t ranks);
uint64_t sl_unit_copy_table(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);
/* Of a copy from so many parts, which reshard_after_forward=parts has kept. */
uint64_t sl_unit_parts_table(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks,
                             uint64_t parts);
uint64_t sl_unit_reduce_input(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);
uint64_t sl_unit_reduce_table(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);
uint64_t sl_unit_reduce_output(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);
uint64_t sl_unit_reduce_cast(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks);

#endif

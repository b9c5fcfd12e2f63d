/* The rules of shards.h, as PyTorch has them: torch/distributed/fsdp/_fully_shard and ATen's TensorShape.cu. */
#include "shards.h"

#include <string.h>

static uint64_t divide_up(uint64_t a, uint64_t b) {
  return b ? (a + b - 1) / b : 0;
}

uint64_t sl_shard_padded(const struct sl_shard_parameter *parameter, uint64_t ranks) {
  return divide_up(parameter->rows, ranks) * parameter->row_elements;
}

uint64_t sl_shard_own(const struct sl_shard_parameter *parameter, uint64_t ranks, uint64_t rank) {
  const uint64_t rows = divide_up(parameter->rows, ranks), before = rows * rank;
  if (before >= parameter->rows)
    return 0;
  const uint64_t left = parameter->rows - before;
  return (left < rows ? left : rows) * parameter->row_elements;
}

static const struct sl_shard_parameter *parameter_at(const struct sl_shards *shards, const struct sl_shard_unit *unit,
                                                     size_t place) {
  return &shards->parameters[unit->parameters[place]];
}

/* The type that a parameter is gathered in. */
static const char *gathered_dtype(const struct sl_shard_unit *unit, const struct sl_shard_parameter *p) {
  return *unit->param_dtype ? unit->param_dtype : p->dtype;
}

static const char *reduced_dtype(const struct sl_shard_unit *unit, const struct sl_shard_parameter *p) {
  return *unit->reduce_dtype ? unit->reduce_dtype : gathered_dtype(unit, p);
}

uint64_t sl_unit_cast(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = parameter_at(shards, unit, i);
    if (strcmp(gathered_dtype(unit, p), p->dtype) != 0)
      bytes += sl_shard_padded(p, ranks) * sl_dtype_bytes(gathered_dtype(unit, p));
  }
  return bytes;
}

uint64_t sl_unit_gathered(const struct sl_shards *shards, const struct sl_shard_unit *unit, size_t place,
                          uint64_t ranks) {
  const struct sl_shard_parameter *p = parameter_at(shards, unit, place);
  return ranks * sl_shard_padded(p, ranks) * sl_dtype_bytes(gathered_dtype(unit, p));
}

uint64_t sl_unit_gather(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < unit->count; i++)
    bytes += sl_unit_gathered(shards, unit, i, ranks);
  return bytes;
}

/* ---- what kernels are told ---- */

enum { BLOCK_THREADS = 128, BLOCK_BYTES = 16 * BLOCK_THREADS, WORD = 8 };

/* Of one of the parts that what is gathered of each parameter comes in. */
static uint64_t blocks_of(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks,
                          uint64_t parts, uint64_t block_bytes) {
  uint64_t blocks = 0;
  for (size_t i = 0; i < unit->count; i++)
    blocks += divide_up(sl_unit_gathered(shards, unit, i, ranks) / parts, block_bytes);
  return blocks;
}

uint64_t sl_unit_parts_table(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks,
                             uint64_t parts) {
  /* It launches twice what the device runs at once, at most; then each thread does several pieces of several parts. */
  const uint64_t most = shards->multiprocessors * shards->multiprocessor_threads / BLOCK_THREADS * 2;
  const uint64_t pieces = divide_up(blocks_of(shards, unit, ranks, parts, BLOCK_BYTES) * parts, most);
  uint64_t together = 1; /* the root, rounded up */
  while (together * together < pieces && together < parts)
    together++;
  const uint64_t blocks = blocks_of(shards, unit, ranks, parts, BLOCK_BYTES * divide_up(pieces, together));
  return WORD * (4 * unit->count + 1 + blocks);
}

uint64_t sl_unit_copy_table(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  return sl_unit_parts_table(shards, unit, ranks, ranks);
}

uint64_t sl_unit_reduce_table(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  uint64_t words = 2;
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = parameter_at(shards, unit, i);
    if (p->is_trained)
      words += 6 + divide_up(sl_shard_padded(p, ranks) * sl_dtype_bytes(reduced_dtype(unit, p)), BLOCK_BYTES);
  }
  return WORD * words;
}

/* ---- gradients ---- */

uint64_t sl_unit_reduce_output(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = parameter_at(shards, unit, i);
    if (p->is_trained)
      bytes += sl_shard_padded(p, ranks) * sl_dtype_bytes(reduced_dtype(unit, p));
  }
  return bytes;
}

uint64_t sl_unit_reduce_input(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  return ranks * sl_unit_reduce_output(shards, unit, ranks);
}

uint64_t sl_unit_reduce_cast(const struct sl_shards *shards, const struct sl_shard_unit *unit, uint64_t ranks) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < unit->count; i++) {
    const struct sl_shard_parameter *p = parameter_at(shards, unit, i);
    if (p->is_trained && strcmp(reduced_dtype(unit, p), p->dtype) != 0)
      bytes += sl_shard_padded(p, ranks) * p->element_bytes;
  }
  return bytes;
}

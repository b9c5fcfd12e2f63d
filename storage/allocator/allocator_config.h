/*
 * The settings of PyTorch's caching allocator that decide block sizes (PYTORCH_CUDA_ALLOC_CONF), and its rounding.
 */
#ifndef SHARDLEDGER_ALLOCATOR_CONFIG_H
#define SHARDLEDGER_ALLOCATOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define SL_ALLOCATOR_SMALL_BYTES (1024u * 1024u) /* requests up to this come from the small pool */
#define SL_ALLOCATOR_MIN_BLOCK 512u

enum { SL_ROUNDUP_INTERVALS = 16 }; /* one for each power of two from 1 MiB to 32 GiB and above */

struct sl_allocator_config {
  bool expandable_segments;
  uint64_t max_split_bytes;     /* larger requests own whole blocks; UINT64_MAX: no limit */
  uint64_t max_rounding_bytes;  /* a request that owns whole blocks takes one that is larger by less than this */
  uint64_t large_segment_bytes; /* of segments that requests between 1 and 10 MiB share */
  double collection_threshold;  /* part of the process's limit above which cached segments are collected; 0: never */
  double memory_fraction;       /* per_process_memory_fraction: the limit, of the device's memory; 0: not set here */
  uint32_t
      roundup_divisions[SL_ROUNDUP_INTERVALS]; /* roundup_power2_divisions by size interval; 0 or 1: plain rounding */
};

/* Reads a PYTORCH_CUDA_ALLOC_CONF value; NULL or "" gives PyTorch's defaults, unknown options change nothing. */
void sl_allocator_config_parse(const char *text, struct sl_allocator_config *out);

/* Bytes that the allocator looks for when requested bytes are asked for. */
uint64_t sl_allocator_round(const struct sl_allocator_config *config, uint64_t requested);

/* Bytes of the segment that the allocator asks the driver for where no block serves rounded bytes. */
uint64_t sl_allocator_segment(const struct sl_allocator_config *config, uint64_t rounded);

/* Whether a free block of block_bytes is split when rounded bytes are taken from it. */
bool sl_allocator_splits(const struct sl_allocator_config *config, uint64_t block_bytes, uint64_t rounded);

#endif

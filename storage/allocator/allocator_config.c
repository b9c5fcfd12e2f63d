/*
 * The same parsing and arithmetic as in PyTorch, since the replay is exact only as long as its sizes are those of the
 * allocator.
 */
#include "allocator_config.h"

#include <stdlib.h>
#include <string.h>

#define MEBIBYTE (1024ull * 1024)

/* "[256:1,512:2,>:4]" (sizes in MiB) or "4" for all intervals. */
static void roundup_parse(const char *value, struct sl_allocator_config *out) {
  if (*value != '[') {
    uint32_t divisions = (uint32_t)strtoul(value, NULL, 10);
    for (int i = 0; i < SL_ROUNDUP_INTERVALS; i++)
      out->roundup_divisions[i] = divisions;
    return;
  }
  int next = 0; /* first interval that no entry has set */
  for (const char *p = value + 1; *p && *p != ']';) {
    bool rest = *p == '>';
    uint64_t mebibytes = rest ? 0 : strtoull(p, NULL, 10);
    p += strcspn(p, ":]");
    if (*p != ':')
      break;
    uint32_t divisions = (uint32_t)strtoul(p + 1, NULL, 10);
    p += strcspn(p, ",]");
    p += *p == ',';
    int index = rest || mebibytes == 0 ? SL_ROUNDUP_INTERVALS : 63 - __builtin_clzll(mebibytes);
    if (next == 0 && !rest)
      for (int i = 0; i < index && i < SL_ROUNDUP_INTERVALS; i++)
        out->roundup_divisions[i] = divisions; /* sizes below the first entry use it too */
    if (rest)
      for (int i = next; i < SL_ROUNDUP_INTERVALS; i++)
        out->roundup_divisions[i] = divisions;
    else if (index < SL_ROUNDUP_INTERVALS)
      out->roundup_divisions[index] = divisions;
    next = index + 1;
  }
}

void sl_allocator_config_parse(const char *text, struct sl_allocator_config *out) {
  memset(out, 0, sizeof *out);
  out->max_split_bytes = UINT64_MAX;
  out->max_rounding_bytes = 20 * MEBIBYTE;
  out->large_segment_bytes = 20 * MEBIBYTE;
  for (const char *p = text ? text : ""; *p;) {
    const char *colon = strchr(p, ':');
    if (!colon)
      return;
    size_t key = (size_t)(colon - p);
    const char *value = colon + 1;
    if (key == strlen("expandable_segments") && strncmp(p, "expandable_segments", key) == 0)
      out->expandable_segments = strncmp(value, "True", 4) == 0 || strncmp(value, "true", 4) == 0;
    else if (key == strlen("max_split_size_mb") && strncmp(p, "max_split_size_mb", key) == 0)
      out->max_split_bytes = strtoull(value, NULL, 10) * MEBIBYTE;
    else if (key == strlen("max_non_split_rounding_mb") && strncmp(p, "max_non_split_rounding_mb", key) == 0)
      out->max_rounding_bytes = strtoull(value, NULL, 10) * MEBIBYTE;
    else if (key == strlen("garbage_collection_threshold") && strncmp(p, "garbage_collection_threshold", key) == 0)
      out->collection_threshold = strtod(value, NULL);
    else if (key == strlen("per_process_memory_fraction") && strncmp(p, "per_process_memory_fraction", key) == 0)
      out->memory_fraction = strtod(value, NULL);
    else if (key == strlen("large_segment_size_mb") && strncmp(p, "large_segment_size_mb", key) == 0)
      out->large_segment_bytes = strtoull(value, NULL, 10) * MEBIBYTE;
    else if (key == strlen("roundup_power2_divisions") && strncmp(p, "roundup_power2_divisions", key) == 0)
      roundup_parse(value, out);
    p = value + (*value == '[' ? strcspn(value, "]") : 0);
    p += strcspn(p, ",");
    while (*p == ',' || *p == ' ')
      p++;
  }
}

static uint32_t divisions_of(const struct sl_allocator_config *config, uint64_t bytes) {
  int log = 63 - __builtin_clzll(bytes) - 20; /* intervals start at 2^20 */
  if (log < 0)
    log = 0;
  return config->roundup_divisions[log < SL_ROUNDUP_INTERVALS ? log : SL_ROUNDUP_INTERVALS - 1];
}

uint64_t sl_allocator_round(const struct sl_allocator_config *config, uint64_t requested) {
  if (requested < SL_ALLOCATOR_MIN_BLOCK)
    return SL_ALLOCATOR_MIN_BLOCK;
  uint32_t divisions = divisions_of(config, requested);
  if (divisions > 1 && requested > (uint64_t)SL_ALLOCATOR_MIN_BLOCK * divisions) {
    if ((requested & (requested - 1)) == 0)
      return requested;
    uint64_t power = 1ull << (63 - __builtin_clzll(requested));
    uint64_t unit = power >> (31 - __builtin_clz(divisions));
    if (unit == 0)
      return power << 1;
    uint64_t down = requested & ~(unit - 1);
    return down == requested ? requested : down + unit;
  }
  return (requested + SL_ALLOCATOR_MIN_BLOCK - 1) / SL_ALLOCATOR_MIN_BLOCK * SL_ALLOCATOR_MIN_BLOCK;
}

uint64_t sl_allocator_segment(const struct sl_allocator_config *config, uint64_t rounded) {
  const uint64_t unit = 2 * MEBIBYTE;
  if (rounded <= SL_ALLOCATOR_SMALL_BYTES)
    return unit;
  return rounded < 10 * MEBIBYTE ? config->large_segment_bytes : (rounded + unit - 1) / unit * unit;
}

bool sl_allocator_splits(const struct sl_allocator_config *config, uint64_t block_bytes, uint64_t rounded) {
  uint64_t rest = block_bytes - rounded;
  if (rounded <= SL_ALLOCATOR_SMALL_BYTES || config->expandable_segments)
    return rest >= SL_ALLOCATOR_MIN_BLOCK;
  return rounded < config->max_split_bytes && rest > SL_ALLOCATOR_SMALL_BYTES;
}

/* The check of a record (log_format.h), the same for those who write and who read it. */
#ifndef SHARDLEDGER_RECORD_CHECK_H
#define SHARDLEDGER_RECORD_CHECK_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stddef.h>
#include <stdint.h>

/* Of fields and tail, so many bytes, behind a header with these values. */
static inline uint16_t sl_record_check(uint64_t type, uint64_t words, uint64_t delta_ns, const void *payload,
                                       size_t bytes) {
  return (uint16_t)XXH3_64bits_withSeed(payload, bytes, type | words << 8 | delta_ns << 16);
}

#endif

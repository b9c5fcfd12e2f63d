/*
 * Requests for memory that were refused for good: by PyTorch's allocator, which says so itself after its retries, and
 * by the driver to other libraries, when no later attempt of the same thread succeeded.
 */
#ifndef SHARDLEDGER_REFUSALS_H
#define SHARDLEDGER_REFUSALS_H

#include "storage/log/log_reader.h"
#include "storage/tables/ledger_writer.h"

struct sl_refusals;

#define SL_REFUSED_BY_ALLOCATOR "allocator"

/* Everything about the instant of the first attempt that later can't be asked any more. */
struct sl_refusal {
  uint64_t at, at_ns; /* position and time */
  uint32_t thread, device;
  const char
      *source; /* SL_REFUSED_BY_ALLOCATOR, or the file name of the library that called the driver, the log's own */
  struct sl_oom_row row;
};

struct sl_refusals *sl_refusals_new(void);                          /* NULL: no memory */
struct sl_refusals *sl_refusals_free(struct sl_refusals *refusals); /* returns NULL */

/* 0 or -ENOMEM. An attempt of the same thread and source for as many bytes replaces the one before. */
int sl_refusals_add(struct sl_refusals *refusals, const struct sl_refusal *refusal, struct sl_error *error);

/* Where in the code the last one of this thread on this device came from; ignored where there is none. */
void sl_refusals_site(struct sl_refusals *refusals, uint32_t thread, uint32_t device, uint32_t site);

/* A driver allocation succeeded on this thread: the same source's attempt for no more bytes was not in vain. */
void sl_refusals_saved(struct sl_refusals *refusals, uint32_t thread, const char *source, uint64_t bytes);

/* Those that stand, in order: from now on they do. clear: forget them. */
const struct sl_refusal *sl_refusals_list(struct sl_refusals *refusals, size_t *count);
void sl_refusals_clear(struct sl_refusals *refusals);

#endif

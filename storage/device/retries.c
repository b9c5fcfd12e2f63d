/* Finds requests that the driver served only after PyTorch had emptied its cache. */
#include "retries.h"

#include "storage/tables/ledger_tables.h"

#include <stdlib.h>

/* A request under way; each thread makes one at a time, so they are few. */
struct retry {
  uint32_t thread, device, refusals;
  uint64_t at_ns, served_ns, bytes, freed_bytes; /* served_ns 0: not yet */
  struct sl_segment_place place;
};

struct sl_retries {
  struct sl_ledger_writer *writer;
  struct retry *open;
  size_t count, capacity;
  uint64_t served;
};

struct sl_retries *sl_retries_new(struct sl_ledger_writer *writer) {
  struct sl_retries *retries = calloc(1, sizeof *retries);
  if (retries)
    retries->writer = writer;
  return retries;
}

struct sl_retries *sl_retries_free(struct sl_retries *retries) {
  if (retries)
    free(retries->open);
  free(retries);
  return NULL;
}

static struct retry *retry_of(const struct sl_retries *retries, uint32_t thread) {
  for (size_t i = 0; i < retries->count; i++)
    if (retries->open[i].thread == thread)
      return &retries->open[i];
  return NULL;
}

static void retry_end(struct sl_retries *retries, struct retry *retry) {
  *retry = retries->open[--retries->count];
}

int sl_retries_refused(struct sl_retries *retries, const struct sl_event *event, uint32_t device, uint64_t bytes,
                       struct sl_segment_place place, struct sl_error *error) {
  struct retry *retry = retry_of(retries, event->thread);
  if (retry) {
    retry->refusals++;
    return 0;
  }
  if (retries->count == retries->capacity) {
    size_t capacity = retries->capacity ? 2 * retries->capacity : 4;
    struct retry *grown = reallocarray(retries->open, capacity, sizeof *grown);
    if (!grown)
      return sl_no_memory(error);
    retries->open = grown;
    retries->capacity = capacity;
  }
  retries->open[retries->count++] = (struct retry){.thread = event->thread,
                                                   .device = device,
                                                   .refusals = 1,
                                                   .at_ns = event->time_ns,
                                                   .bytes = bytes,
                                                   .place = place};
  return 0;
}

void sl_retries_freed(struct sl_retries *retries, uint32_t thread, uint64_t bytes) {
  struct retry *retry = retry_of(retries, thread);
  if (retry)
    retry->freed_bytes += bytes;
}

static int retry_write(struct sl_retries *retries, struct retry *retry, struct sl_error *error) {
  const struct sl_retry_cells cells = {
      .device = retry->device,
      .at_ns = (int64_t)retry->at_ns,
      .served_ns = (int64_t)retry->served_ns,
      .bytes = (int64_t)retry->bytes,
      .refusals = retry->refusals,
      .freed_bytes = (int64_t)retry->freed_bytes,
      .phase_id = retry->place.phase,
      .module_id = retry->place.module,
      .step = sl_known(retry->place.step, -1),
  };
  retry_end(retries, retry);
  retries->served++;
  return sl_put_retry(retries->writer, &cells, error);
}

int sl_retries_given(struct sl_retries *retries, const struct sl_event *event, bool by_trace, struct sl_error *error) {
  struct retry *retry = retries->count ? retry_of(retries, event->thread) : NULL;
  if (!retry)
    return 0;
  retry->served_ns = event->time_ns;
  return by_trace ? 0 : retry_write(retries, retry, error);
}

/* An expandable segment comes in pieces, any of which may be refused: so the allocator's word counts, not the driver's.
 */
int sl_retries_allocator(struct sl_retries *retries, const struct sl_event *event, uint32_t device,
                         struct sl_error *error) {
  const struct sl_event_allocator *e = event->payload;
  const bool came = e->action == SL_SEGMENT_ALLOC || e->action == SL_SEGMENT_MAP;
  if (!retries->count || (!came && e->action != SL_OUT_OF_MEMORY))
    return 0;
  struct retry *retry = retry_of(retries, event->thread);
  for (size_t i = 0; event->past && i < retries->count; i++) /* the history does not say which thread it was */
    if (retries->open[i].device == device)
      retry = &retries->open[i];
  if (!retry || retry->device != device)
    return 0;
  if (!came) {
    retry_end(retries, retry);
    return 0;
  }
  if (!retry->served_ns)
    retry->served_ns = event->time_ns;
  return retry_write(retries, retry, error);
}

uint64_t sl_retries_served(const struct sl_retries *retries) {
  return retries->served;
}

/*
 * Live ranges by their address. Once a call of the driver has been recorded, segments of the allocator say nothing new
 * and are left out.
 */
#include "driver_segments.h"

#include "plugin/format/events.h"
#include "storage/hash_table.h"

#include "storage/grow.h"
#include "storage/tables/ledger_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct segment {
  uint64_t address, bytes, stream, alloc_ns;
  uint32_t device;
  const char *owner, *api; /* static, or owned by the log */
  struct sl_segment_place place;
  bool from_driver;
  bool is_host; /* pinned memory of the host: a row of its own table, and no part of the device's sums */
  UT_hash_handle hh;
};

struct sl_driver_segments {
  const struct sl_log *log;
  struct sl_ledger_writer *writer;
  struct segment *live;
  struct sl_owner_total *totals;
  size_t total_count;
  bool driver_seen; /* driver calls are recorded: the allocator's segments add nothing new */
};

struct sl_driver_segments *sl_driver_segments_new(const struct sl_log *log, struct sl_ledger_writer *writer) {
  struct sl_driver_segments *segments = calloc(1, sizeof *segments);
  if (segments) {
    segments->log = log;
    segments->writer = writer;
  }
  return segments;
}

struct sl_driver_segments *sl_driver_segments_free(struct sl_driver_segments *segments) {
  if (!segments)
    return NULL;
  SL_HASH_FREE(segments->live);
  free(segments->totals);
  free(segments);
  return NULL;
}

static struct segment *segment_find(const struct sl_driver_segments *segments, uint64_t address) {
  struct segment *segment;
  HASH_FIND(hh, segments->live, &address, sizeof address, segment);
  return segment;
}

static int segment_write(struct sl_driver_segments *segments, const struct segment *segment, uint64_t free_ns,
                         struct sl_error *error) {
  const struct sl_segment_place *place = &segment->place;
  if (segment->is_host)
    return sl_put_host_segment(segments->writer,
                               &(struct sl_host_segment_cells){
                                   .address = (int64_t)segment->address,
                                   .bytes = (int64_t)segment->bytes,
                                   .owner = segment->owner,
                                   .api = segment->api,
                                   .alloc_ns = (int64_t)segment->alloc_ns,
                                   .free_ns = sl_known((int64_t)free_ns, 0),
                                   .phase_id = place->phase,
                                   .module_id = place->module,
                                   .step = sl_known(place->step, -1),
                               },
                               error);
  return sl_put_segment(segments->writer,
                        &(struct sl_segment_cells){
                            .device = segment->device,
                            .address = (int64_t)segment->address,
                            .bytes = (int64_t)segment->bytes,
                            .owner = segment->owner,
                            .api = segment->api,
                            .stream = (int64_t)segment->stream,
                            .alloc_ns = (int64_t)segment->alloc_ns,
                            .free_ns = sl_known((int64_t)free_ns, 0),
                            .phase_id = place->phase,
                            .module_id = place->module,
                            .step = sl_known(place->step, -1),
                        },
                        error);
}

const struct sl_owner_total *sl_driver_segments_totals(const struct sl_driver_segments *segments, size_t *count) {
  *count = segments->total_count;
  return segments->totals;
}

/* The total that a segment counts in; NULL: no memory. Owners are few. */
static struct sl_owner_total *total_of(struct sl_driver_segments *segments, const struct segment *segment) {
  for (size_t i = 0; i < segments->total_count; i++) {
    struct sl_owner_total *total = &segments->totals[i];
    if (total->device == segment->device && (total->owner == segment->owner || !strcmp(total->owner, segment->owner)))
      return total;
  }
  struct sl_owner_total *total = SL_LIST_ADD(segments->totals, segments->total_count);
  if (!total)
    return NULL;
  *total = (struct sl_owner_total){.device = segment->device, .owner = segment->owner};
  return total;
}

/* cuMemAllocAsync, cuMemAllocFromPoolAsync and their kin. */
static bool is_pooled(const struct segment *segment) {
  return strstr(segment->api, "Async") != NULL;
}

static int count_in(struct sl_driver_segments *segments, const struct segment *segment, struct sl_error *error) {
  if (segment->is_host)
    return 0;
  struct sl_owner_total *total = total_of(segments, segment);
  if (!total)
    return sl_no_memory(error);
  total->bytes += segment->bytes;
  if (is_pooled(segment))
    total->pooled_bytes += segment->bytes;
  if (total->pooled_bytes > total->highest_pooled_bytes)
    total->highest_pooled_bytes = total->pooled_bytes;
  return 0;
}

static void count_out(struct sl_driver_segments *segments, const struct segment *segment) {
  if (segment->is_host)
    return;
  struct sl_owner_total *total = total_of(segments, segment); /* there since it was counted in */
  if (total) {
    total->bytes -= segment->bytes;
    total->pooled_bytes -= is_pooled(segment) ? segment->bytes : 0;
  }
}

static int segment_end(struct sl_driver_segments *segments, uint64_t address, uint64_t free_ns,
                       struct sl_error *error) {
  struct segment *segment = segment_find(segments, address);
  if (!segment)
    return 0;
  int r = segment_write(segments, segment, free_ns, error);
  count_out(segments, segment);
  HASH_DEL(segments->live, segment);
  free(segment);
  return r;
}

static int segment_begin(struct sl_driver_segments *segments, const struct segment *begun, struct sl_error *error) {
  int r = segment_end(segments, begun->address, begun->alloc_ns, error); /* its free was not recorded */
  struct segment *segment = malloc(sizeof *segment);
  if (!segment)
    return sl_no_memory(error);
  *segment = *begun;
  SL_HASH_ADD(segments->live, address, segment);
  if (!segment)
    return sl_no_memory(error);
  return r < 0 ? r : count_in(segments, segment, error);
}

/*
 * PyTorch calls the driver from libc10_cuda, for pinned memory from libtorch_cuda; everybody else goes by the library's
 * own file name.
 */
static const char *owner_name(const char *library, bool is_host) {
  if (strncmp(library, "libc10_cuda", 11) == 0 || (is_host && strncmp(library, "libtorch_cuda", 13) == 0))
    return "pytorch";
  return *library ? library : "unknown";
}

struct sl_segment_place sl_segment_place_of(struct sl_phase *phase) {
  for (struct sl_phase *around = phase; around && !around->needed; around = around->parent)
    around->needed = true; /* these rows are kept in any case */
  return (struct sl_segment_place){
      .phase = phase ? phase->id : 0, .module = sl_phase_module(phase), .step = phase ? phase->step : -1};
}

int sl_driver_segments_add(struct sl_driver_segments *segments, const struct sl_event *event, struct sl_phase *phase,
                           struct sl_error *error) {
  const struct sl_event_driver_allocation *e = event->payload;
  segments->driver_seen = true;
  /* Kind unknown are handles, whose memory counts when it is mapped, and mappings of what another process holds. */
  if (e->kind == SL_MEMORY_PAGEABLE || e->kind == SL_MEMORY_UNKNOWN)
    return 0;
  const bool is_host = e->kind == SL_MEMORY_PINNED;
  struct segment segment = {
      .address = e->address,
      .bytes = e->bytes,
      .stream = e->stream,
      .alloc_ns = event->time_ns,
      .device = e->device,
      .owner = owner_name(sl_log_string(segments->log, e->owner), is_host),
      .api = sl_log_string(segments->log, e->api),
      .place = sl_segment_place_of(phase),
      .from_driver = true,
      .is_host = is_host,
  };
  struct segment *known = segment_find(segments, e->address);
  if (known && !known->from_driver && known->alloc_ns > event->time_ns) {
    /* Of a snapshot that was taken later. The driver knows when it came; of a mapped range, each piece. */
    known->alloc_ns = segment.alloc_ns;
    known->bytes = segment.bytes;
    known->api = segment.api;
    known->from_driver = true;
    return 0;
  }
  return segment_begin(segments, &segment, error);
}

int sl_driver_segments_remove(struct sl_driver_segments *segments, const struct sl_event *event,
                              struct sl_error *error) {
  const struct sl_event_driver_free *e = event->payload;
  return segment_end(segments, e->address, event->time_ns, error);
}

uint64_t sl_driver_segments_bytes(const struct sl_driver_segments *segments, uint64_t address) {
  const struct segment *segment = segment_find(segments, address);
  return segment ? segment->bytes : 0;
}

int sl_driver_segments_allocator_add(struct sl_driver_segments *segments, uint32_t device, uint64_t address,
                                     uint64_t bytes, uint64_t stream, uint64_t time_ns, const char *action,
                                     struct sl_phase *phase, struct sl_error *error) {
  struct segment *known = segment_find(segments, address);
  if (known && known->from_driver) {
    count_out(segments, known);
    known->owner = "pytorch";
    known->stream = stream;
    return count_in(segments, known, error);
  }
  if (segments->driver_seen)
    return 0;
  struct segment segment = {
      .address = address,
      .bytes = bytes,
      .stream = stream,
      .alloc_ns = time_ns,
      .device = device,
      .owner = "pytorch",
      .api = action,
      .place = sl_segment_place_of(phase),
  };
  return segment_begin(segments, &segment, error);
}

int sl_driver_segments_allocator_remove(struct sl_driver_segments *segments, uint64_t address, uint64_t time_ns,
                                        struct sl_error *error) {
  const struct segment *known = segment_find(segments, address);
  return known && !known->from_driver ? segment_end(segments, address, time_ns, error) : 0;
}

int sl_driver_segments_finish(struct sl_driver_segments *segments, struct sl_error *error) {
  int r = 0;
  for (struct segment *segment = segments->live; segment && r == 0; segment = segment->hh.next)
    r = segment_write(segments, segment, 0, error);
  return r;
}

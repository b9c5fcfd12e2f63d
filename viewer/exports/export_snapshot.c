/*
 * PyTorch's memory snapshot, as torch.cuda.memory._dump_snapshot writes it, one pickle a rank: the segments and blocks
 * at the end of the record, and how it came to that. Where PyTorch has stacks, a block has frames of the ledger's own,
 * its category, its module and the phase that made it, and then its Python call stack, where that is known.
 */
#include "exports/export.h"
#include "exports/pickle.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_DEVICES = 64 };
enum { SMALL_SEGMENT = 2 << 20 }; /* kSmallBuffer: segments of this size hold small blocks only */

struct writer {
  struct sl_export *export;
  struct sl_pickle pickle;
  int64_t rank, device;
  int64_t segments;           /* written so far */
  struct sl_statement *stack; /* asks for the frames of a call stack */
  int stack_failed;           /* a negative errno, with the sentence in error */
  struct sl_error *error;
};

static void integer(struct writer *w, const char *key, int64_t value) {
  sl_pickle_key(&w->pickle, key);
  sl_pickle_integer(&w->pickle, value);
}

static void word(struct writer *w, const char *key, const char *value) {
  sl_pickle_key(&w->pickle, key);
  sl_pickle_key(&w->pickle, value);
}

static void frame(struct writer *w, const char *name, const char *file, int64_t line) {
  sl_pickle_open_dict(&w->pickle);
  sl_pickle_key(&w->pickle, "name");
  sl_pickle_text(&w->pickle, name);
  sl_pickle_key(&w->pickle, "filename");
  sl_pickle_text(&w->pickle, file);
  integer(w, "line", line);
  sl_pickle_close_dict(&w->pickle);
}

/* What a row says of a block's origin, as columns from `first` on: category, module, phase; and the frame of its stack.
 */
static void frames(struct writer *w, struct sl_statement *row, int first) {
  static const char *const places[] = {"category", "module", "phase"};
  enum { PLACES = sizeof places / sizeof places[0] };
  sl_pickle_key(&w->pickle, "frames");
  sl_pickle_open_list(&w->pickle);
  for (int i = 0; i < PLACES; i++)
    if (!sl_column_is_null(row, first + i))
      frame(w, sl_column_text(row, first + i), places[i], 0);
  if (!sl_column_is_null(row, first + PLACES)) {
    sl_statement_reset(w->stack);
    sl_bind_named_int(w->stack, ":frame", sl_column_int(row, first + PLACES));
    while (w->stack_failed == 0 && (w->stack_failed = sl_statement_step(w->stack, w->error)) > 0) {
      frame(w, sl_column_text(w->stack, 1), sl_column_text(w->stack, 2), sl_column_int(w->stack, 3));
      w->stack_failed = 0;
    }
  }
  sl_pickle_close_list(&w->pickle);
}

/* ---- segments and their blocks ---- */

/*
 * Segments alive at the end, each with its blocks in order. Mappings that lie side by side are one segment, as
 * expandable segments are. Blocks without a segment in the record get one of their own size. What is summed comes
 * before the blocks, so both come from one sorted pass: rows of the segment first.
 */

enum { BLOCK_ORIGIN = 6 };

struct segment {
  int64_t device, address, bytes, stream;
  bool known, expandable, begun;
  int64_t position; /* up to where its blocks are written */
  int64_t allocated, active, requested, blocks;
};

struct block {
  int64_t device, address, bytes, requested, stream;
  bool pending; /* freed, but a stream still uses it */
};

static void begin_segment(struct writer *w, struct segment *s) {
  if (s->begun)
    return;
  sl_pickle_between(&w->pickle, w->segments++);
  sl_pickle_open_dict(&w->pickle);
  integer(w, "device", s->device);
  integer(w, "address", s->address);
  integer(w, "total_size", s->bytes);
  integer(w, "stream", s->stream);
  word(w, "segment_type", s->bytes == SMALL_SEGMENT ? "small" : "large");
  sl_pickle_key(&w->pickle, "segment_pool_id");
  sl_pickle_pair(&w->pickle, 0, 0);
  sl_pickle_key(&w->pickle, "is_expandable");
  sl_pickle_bool(&w->pickle, s->expandable);
  sl_pickle_key(&w->pickle, "frames");
  sl_pickle_open_list(&w->pickle);
  sl_pickle_close_list(&w->pickle);
  sl_pickle_key(&w->pickle, "blocks");
  sl_pickle_open_list(&w->pickle);
  s->begun = true;
  s->position = s->address;
}

static void begin_block(struct writer *w, struct segment *s, int64_t bytes, int64_t requested, const char *state) {
  sl_pickle_between(&w->pickle, s->blocks++);
  sl_pickle_open_dict(&w->pickle);
  integer(w, "address", s->position);
  integer(w, "size", bytes);
  integer(w, "requested_size", requested);
  word(w, "state", state);
  s->position += bytes;
}

/* What lies between two blocks is free. */
static void write_gap(struct writer *w, struct segment *s, int64_t until) {
  if (until <= s->position)
    return;
  begin_block(w, s, until - s->position, 0, "inactive");
  sl_pickle_key(&w->pickle, "frames");
  sl_pickle_open_list(&w->pickle);
  sl_pickle_close_list(&w->pickle);
  sl_pickle_close_dict(&w->pickle);
}

static void end_segment(struct writer *w, struct segment *s) {
  if (!s->known)
    return;
  begin_segment(w, s);
  write_gap(w, s, s->address + s->bytes);
  sl_pickle_close_list(&w->pickle);
  integer(w, "allocated_size", s->allocated);
  integer(w, "active_size", s->active);
  integer(w, "requested_size", s->requested);
  sl_pickle_close_dict(&w->pickle);
  s->known = false;
}

static void write_block(struct writer *w, struct segment *s, const struct block *b, struct sl_statement *row) {
  begin_segment(w, s);
  write_gap(w, s, b->address);
  begin_block(w, s, b->bytes, b->requested, b->pending ? "active_pending_free" : "active_allocated");
  frames(w, row, BLOCK_ORIGIN);
  sl_pickle_close_dict(&w->pickle);
  s->allocated += b->pending ? 0 : b->bytes;
  s->active += b->bytes;
  s->requested += b->requested;
}

static int next_segment(struct sl_statement *rows, struct segment *out, struct sl_error *error) {
  int r = sl_statement_step(rows, error);
  *out = (struct segment){.known = r > 0};
  if (r > 0)
    *out = (struct segment){.known = true,
                            .device = sl_column_int(rows, 0),
                            .address = sl_column_int(rows, 1),
                            .bytes = sl_column_int(rows, 2),
                            .stream = sl_column_int(rows, 3),
                            .expandable = sl_column_int(rows, 4) != 0};
  return r < 0 ? r : 0;
}

/* Both come by device and address: one pass gives each block its segment. */
static int write_segments(struct writer *w, struct sl_error *error) {
  struct sl_statement *segments = NULL, *blocks = NULL;
  struct segment s = {.known = false};
  int r = sl_db_prepare(w->export->db, sl_sql_snapshot_segments, &segments, error);
  if (r == 0)
    r = sl_db_prepare(w->export->db, sl_sql_snapshot_blocks, &blocks, error);
  if (r < 0)
    goto finish;
  sl_bind_named_int(segments, ":rank", w->rank);
  sl_bind_named_int(blocks, ":rank", w->rank);
  r = next_segment(segments, &s, error);
  while (r == 0 && (r = sl_statement_step(blocks, error)) > 0) {
    struct block b = {.device = sl_column_int(blocks, 0),
                      .address = sl_column_int(blocks, 1),
                      .bytes = sl_column_int(blocks, 2),
                      .requested = sl_column_int(blocks, 3),
                      .stream = sl_column_int(blocks, 4),
                      .pending = sl_column_int(blocks, 5) != 0};
    r = 0;
    while (r == 0 && s.known && (s.device < b.device || (s.device == b.device && s.address + s.bytes <= b.address))) {
      end_segment(w, &s);
      r = next_segment(segments, &s, error);
    }
    if (r < 0)
      break;
    if (!s.known || s.device != b.device || b.address < s.address) {
      /* Nothing in the record holds it: cudaMallocAsync's blocks, or a segment from before the record. */
      struct segment own = {
          .known = true, .device = b.device, .address = b.address, .bytes = b.bytes, .stream = b.stream};
      write_block(w, &own, &b, blocks);
      end_segment(w, &own);
    } else if (b.address + b.bytes <= s.address + s.bytes) {
      write_block(w, &s, &b, blocks);
    }
  }
  while (r == 0 && s.known) {
    end_segment(w, &s);
    r = next_segment(segments, &s, error);
  }

finish:
  segments = sl_statement_close(segments);
  blocks = sl_statement_close(blocks);
  return r;
}

/* ---- how it came to that ---- */

/*
 * The allocator's actions on a device (:device), in their order. A mapping of an expandable segment is PyTorch's
 * segment_map.
 */
enum { EVENT_AT, EVENT_PLACE, EVENT_ACTION, EVENT_ADDRESS, EVENT_SIZE, EVENT_STREAM, EVENT_CATEGORY, EVENT_ORIGIN };

static int write_events(struct writer *w, int64_t device, struct sl_statement *events, struct sl_error *error) {
  int64_t count = 0;
  int r = 0;
  sl_bind_named_int(events, ":rank", w->rank);
  sl_bind_named_int(events, ":device", device);
  sl_bind_named_int(events, ":own_device", w->device);
  sl_pickle_open_list(&w->pickle);
  while ((r = sl_statement_step(events, error)) > 0) {
    bool oom = sl_column_int(events, EVENT_PLACE) == 5;
    sl_pickle_between(&w->pickle, count++);
    sl_pickle_open_dict(&w->pickle);
    sl_pickle_key(&w->pickle, "action");
    sl_pickle_text(&w->pickle, sl_column_text(events, EVENT_ACTION));
    integer(w, oom ? "device_free" : "addr", sl_column_int(events, EVENT_ADDRESS));
    integer(w, "size", sl_column_int(events, EVENT_SIZE));
    integer(w, "stream", sl_column_int(events, EVENT_STREAM));
    integer(w, "time_us", sl_column_int(events, EVENT_AT) / 1000);
    integer(w, "device", device);
    /* memory_viz colours by this, where one of them is "unknown". */
    if (!sl_column_is_null(events, EVENT_CATEGORY)) {
      sl_pickle_key(&w->pickle, "category");
      sl_pickle_text(&w->pickle, sl_column_text(events, EVENT_CATEGORY));
    }
    frames(w, events, EVENT_ORIGIN);
    sl_pickle_close_dict(&w->pickle);
    sl_export_progress(w->export);
  }
  sl_pickle_close_list(&w->pickle);
  return r;
}

/* One list for each device up to the highest that PyTorch used. */
static int write_traces(struct writer *w, struct sl_error *error) {
  struct sl_statement *events = NULL, *highest = NULL;
  int64_t devices = 0;
  int r = sl_db_prepare(w->export->db, sl_sql_snapshot_devices, &highest, error);
  if (r < 0)
    goto finish;
  sl_bind_named_int(highest, ":rank", w->rank);
  r = sl_statement_step(highest, error);
  devices = r > 0 ? sl_column_int(highest, 0) : 0;
  if (r >= 0)
    r = sl_db_prepare(w->export->db, sl_sql_snapshot_events, &events, error);
  if (r == 0 && devices > MOST_DEVICES)
    r = sl_error_set(error, -EBADMSG, "rank %" PRId64 " used device %" PRId64 ", which no host has", w->rank,
                     devices - 1);
  for (int64_t device = 0; r == 0 && device < devices; device++)
    r = write_events(w, device, events, error);

finish:
  highest = sl_statement_close(highest);
  events = sl_statement_close(events);
  return r;
}

/* Ranges, as PyTorch records those of torch.profiler.record_function with global_record_annotations. */
static int write_annotations(struct writer *w, struct sl_error *error) {
  struct sl_statement *ranges = NULL;
  int64_t count = 0;
  int r = sl_db_ask(w->export->db, sl_sql_snapshot_annotations, SL_WITH(SL_NUMBER(":rank", w->rank)), &ranges, error);
  sl_pickle_key(&w->pickle, "external_annotations");
  sl_pickle_open_list(&w->pickle);
  while (r >= 0 && (r = sl_statement_step(ranges, error)) > 0) {
    sl_pickle_between(&w->pickle, count++);
    sl_pickle_open_dict(&w->pickle);
    sl_pickle_key(&w->pickle, "name");
    sl_pickle_text(&w->pickle, sl_column_text(ranges, 0));
    word(w, "stage", sl_column_int(ranges, 1) ? "START" : "END");
    integer(w, "device", w->device);
    integer(w, "time_us", sl_column_int(ranges, 2) / 1000);
    sl_pickle_close_dict(&w->pickle);
    sl_export_progress(w->export);
  }
  sl_pickle_close_list(&w->pickle);
  ranges = sl_statement_close(ranges);
  return r;
}

static int write_rank(struct sl_export *export, struct sl_statement *ranks, struct sl_error *error) {
  struct writer w = {.export = export,
                     .rank = sl_column_int(ranks, SL_RANK_rank),
                     .device = sl_column_int(ranks, SL_RANK_device),
                     .error = error};
  struct sl_export_file file;
  char *path = NULL;
  if (asprintf(&path, "%s/rank%" PRId64 ".pickle", export->output, w.rank) < 0)
    return sl_no_memory(error);
  int r = sl_export_begin(path, false, &file, error);
  free(path);
  if (r < 0)
    return r;
  sl_pickle_begin(&w.pickle, file.stream);
  sl_pickle_open_dict(&w.pickle);
  sl_pickle_key(&w.pickle, "segments");
  sl_pickle_open_list(&w.pickle);
  r = sl_db_prepare(export->db, sl_sql_code_stack, &w.stack, error);
  if (r == 0)
    r = write_segments(&w, error);
  sl_pickle_close_list(&w.pickle);
  sl_pickle_key(&w.pickle, "device_traces");
  sl_pickle_open_list(&w.pickle);
  if (r == 0)
    r = write_traces(&w, error);
  sl_pickle_close_list(&w.pickle);
  if (r == 0)
    r = write_annotations(&w, error);
  sl_pickle_close_dict(&w.pickle);
  sl_pickle_end(&w.pickle);
  w.stack = sl_statement_close(w.stack);
  return sl_export_end(&file, r < 0 ? r : w.stack_failed, error);
}

int sl_export_snapshot(struct sl_export *export, struct sl_error *error) {
  return sl_export_each_rank(export, write_rank, error);
}

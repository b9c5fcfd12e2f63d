/*
 * Perfetto's protobuf trace: a Trace is packets one after the other, so that it is written as it is read. Perfetto
 * sorts by time itself; only the events of one track have to come in order.
 */
#include "exports/demangle.h"
#include "exports/export.h"
#include "exports/protobuf.h"
#include "storage/grow.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers of the published proto, perfetto_trace.proto. */
enum { TRACE_PACKET = 1 };
enum {
  PACKET_TIMESTAMP = 8,
  PACKET_SEQUENCE = 10,
  PACKET_TRACK_EVENT = 11,
  PACKET_TRACK_DESCRIPTOR = 60,
};
enum { TRACK_UUID = 1, TRACK_NAME = 2, TRACK_PROCESS = 3, TRACK_THREAD = 4, TRACK_PARENT = 5, TRACK_COUNTER = 8 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6, THREAD_PID = 1, THREAD_TID = 2, THREAD_NAME = 5, COUNTER_UNIT = 3 };
enum {
  EVENT_DEBUG = 4,
  EVENT_TYPE = 9,
  EVENT_TRACK = 11,
  EVENT_CATEGORY = 22,
  EVENT_NAME = 23,
  EVENT_COUNTER = 30,
  EVENT_FLOW = 47,
  EVENT_FLOW_END = 48,
};
enum { DEBUG_INTEGER = 4, DEBUG_TEXT = 6, DEBUG_NAME = 10 };
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3, COUNTER = 4 };
enum { UNIT_BYTES = 3 };

struct named_track {
  int64_t key, other_key;
  uint64_t track;
  int64_t last; /* of a counter its value, of a stream the end of its last slice */
};

/* Few: threads, streams, categories. */
struct named_tracks {
  struct named_track *items;
  int count;
};

struct writer {
  struct sl_export *export;
  FILE *file;
  int64_t rank, pid, zero;
  uint64_t process; /* its track */
  uint64_t last_track;
  struct named_tracks threads;
  struct sl_message packet, event, inner;
};

static void write_packet(struct writer *w) {
  struct sl_message framed = {0};
  sl_message_integer(&w->packet, PACKET_SEQUENCE, 1);
  sl_message_message(&framed, TRACE_PACKET, &w->packet);
  if (!framed.failed)
    fwrite(framed.bytes, 1, framed.length, w->file);
  w->packet.failed |= framed.failed;
  sl_message_free(&framed);
  sl_message_reset(&w->packet);
}

/* ---- tracks ---- */

/* Begins a descriptor of a new track; end_track writes it. */
static uint64_t begin_track(struct writer *w, uint64_t parent, const char *name) {
  sl_message_reset(&w->event);
  sl_message_integer(&w->event, TRACK_UUID, ++w->last_track);
  if (parent)
    sl_message_integer(&w->event, TRACK_PARENT, parent);
  if (name)
    sl_message_text(&w->event, TRACK_NAME, name);
  return w->last_track;
}

static void end_track(struct writer *w) {
  sl_message_message(&w->packet, PACKET_TRACK_DESCRIPTOR, &w->event);
  write_packet(w);
}

static uint64_t plain_track(struct writer *w, uint64_t parent, const char *name) {
  uint64_t track = begin_track(w, parent, name);
  end_track(w);
  return track;
}

/*
 * The process id is the rank's place: pids of several hosts may be the same. Perfetto shows it beside the name, which
 * has the pid.
 */
static void process_track(struct writer *w, struct sl_statement *ranks) {
  char name[160];
  snprintf(name, sizeof(name), "rank %" PRId64 " (%.64s, pid %" PRId64 ", GPU %" PRId64 ")", w->rank,
           sl_column_text(ranks, SL_RANK_host), sl_column_int(ranks, SL_RANK_pid),
           sl_column_int(ranks, SL_RANK_device));
  w->process = begin_track(w, 0, NULL);
  sl_message_reset(&w->inner);
  sl_message_integer(&w->inner, PROCESS_PID, (uint64_t)w->rank + 1);
  sl_message_text(&w->inner, PROCESS_NAME, name);
  sl_message_message(&w->event, TRACK_PROCESS, &w->inner);
  end_track(w);
}

static uint64_t counter_track(struct writer *w, uint64_t parent, const char *name) {
  uint64_t track = begin_track(w, parent, name);
  sl_message_reset(&w->inner);
  sl_message_integer(&w->inner, COUNTER_UNIT, UNIT_BYTES);
  sl_message_message(&w->event, TRACK_COUNTER, &w->inner);
  end_track(w);
  return track;
}

/* The item with these keys, new and zeroed where there is none; NULL: out of memory. */
static struct named_track *find_track(struct named_tracks *tracks, int64_t key, int64_t other_key) {
  for (int i = 0; i < tracks->count; i++)
    if (tracks->items[i].key == key && tracks->items[i].other_key == other_key)
      return &tracks->items[i];
  struct named_track *added = SL_LIST_ADD(tracks->items, tracks->count);
  if (!added)
    return NULL;
  *added = (struct named_track){.key = key, .other_key = other_key};
  return added;
}

static void free_tracks(struct named_tracks *tracks) {
  free(tracks->items);
  *tracks = (struct named_tracks){0};
}

/* ---- events ---- */

static void begin_event(struct writer *w, int type, uint64_t track) {
  sl_message_reset(&w->event);
  sl_message_integer(&w->event, EVENT_TYPE, (uint64_t)type);
  sl_message_integer(&w->event, EVENT_TRACK, track);
}

static void end_event(struct writer *w, int64_t at_ns) {
  sl_message_integer(&w->packet, PACKET_TIMESTAMP, (uint64_t)(at_ns > w->zero ? at_ns - w->zero : 0));
  sl_message_message(&w->packet, PACKET_TRACK_EVENT, &w->event);
  write_packet(w);
}

static void debug_integer(struct writer *w, const char *name, int64_t value) {
  sl_message_reset(&w->inner);
  sl_message_text(&w->inner, DEBUG_NAME, name);
  sl_message_integer(&w->inner, DEBUG_INTEGER, (uint64_t)value);
  sl_message_message(&w->event, EVENT_DEBUG, &w->inner);
}

static void debug_text(struct writer *w, const char *name, const char *value) {
  sl_message_reset(&w->inner);
  sl_message_text(&w->inner, DEBUG_NAME, name);
  sl_message_text(&w->inner, DEBUG_TEXT, value);
  sl_message_message(&w->event, EVENT_DEBUG, &w->inner);
}

static void write_end(struct writer *w, uint64_t track, int64_t at_ns) {
  begin_event(w, SLICE_END, track);
  end_event(w, at_ns);
}

static void write_counter(struct writer *w, uint64_t track, int64_t at_ns, int64_t value) {
  begin_event(w, COUNTER, track);
  sl_message_integer(&w->event, EVENT_COUNTER, (uint64_t)value);
  end_event(w, at_ns);
}

/* ---- phases ---- */

struct thread {
  int64_t tid;
  uint64_t track;
  struct sl_nesting nesting; /* its open slices */
};

/* Ends the slices that are over at at_ns: the nesting has let go of them, in this order. */
static void end_slices(struct writer *w, struct thread *thread, int64_t at_ns) {
  while (thread->nesting.depth > 0 && thread->nesting.ends[thread->nesting.depth - 1] <= at_ns)
    write_end(w, thread->track, thread->nesting.ends[--thread->nesting.depth]);
}

static uint64_t thread_track(struct writer *w, int64_t tid) {
  struct named_track *known = find_track(&w->threads, tid, 0);
  if (!known) {
    w->packet.failed = true;
    return w->process;
  }
  if (known->track)
    return known->track;
  struct sl_statement *label = NULL;
  struct sl_error unsaid;
  int named = sl_db_ask_first(w->export->db, sl_sql_export_thread,
                              SL_WITH(SL_NUMBER(":rank", w->rank), SL_NUMBER(":tid", tid)), &label, &unsaid);
  known->track = begin_track(w, w->process, NULL);
  sl_message_reset(&w->inner);
  sl_message_integer(&w->inner, THREAD_PID, (uint64_t)w->rank + 1);
  sl_message_integer(&w->inner, THREAD_TID, (uint64_t)tid);
  if (named > 0)
    sl_message_text(&w->inner, THREAD_NAME, sl_column_text(label, 0));
  w->packet.failed |= named < 0;
  label = sl_statement_close(label);
  sl_message_message(&w->event, TRACK_THREAD, &w->inner);
  end_track(w);
  return known->track;
}

static int write_phases(struct writer *w, struct sl_error *error) {
  struct sl_statement *phases = NULL;
  struct thread thread = {.tid = -1};
  int r = sl_db_ask(w->export->db, sl_sql_export_phases, SL_WITH(SL_NUMBER(":rank", w->rank)), &phases, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(phases, error)) > 0) {
    int64_t start = sl_column_int(phases, SL_PHASE_start), end = sl_column_int(phases, SL_PHASE_end);
    uint64_t track = 0;
    if (sl_column_int(phases, SL_PHASE_tid) != thread.tid) {
      end_slices(w, &thread, INT64_MAX);
      thread = (struct thread){.tid = sl_column_int(phases, SL_PHASE_tid)};
      thread.track = thread_track(w, thread.tid);
    }
    end_slices(w, &thread, start);
    bool nests = sl_nesting_fits(&thread.nesting, start, end);
    /* A track's slices have to nest: what crosses has a track for itself, under its thread. */
    track = nests ? thread.track : plain_track(w, thread.track, sl_column_text(phases, SL_PHASE_kind));
    begin_event(w, SLICE_BEGIN, track);
    sl_message_text(&w->event, EVENT_NAME, sl_column_text(phases, SL_PHASE_name));
    sl_message_text(&w->event, EVENT_CATEGORY, sl_column_text(phases, SL_PHASE_kind));
    if (!sl_column_is_null(phases, SL_PHASE_module))
      debug_text(w, "module", sl_column_text(phases, SL_PHASE_module));
    if (!sl_column_is_null(phases, SL_PHASE_step))
      debug_integer(w, "step", sl_column_int(phases, SL_PHASE_step));
    end_event(w, start);
    if (!nests)
      write_end(w, track, end);
    sl_export_progress(w->export);
  }
  end_slices(w, &thread, INT64_MAX);
  phases = sl_statement_close(phases);
  return r;
}

/* ---- the device ---- */

/* The track of a stream's kernels or copies; kinds apart, because each comes in its own order. */
static struct named_track *stream_track(struct writer *w, struct named_tracks *streams, uint64_t parent, int64_t device,
                                        int64_t stream, const char *what) {
  char name[64];
  struct named_track *known = find_track(streams, device, stream);
  if (known && !known->track) {
    snprintf(name, sizeof(name), "GPU %" PRId64 " stream %" PRId64 "%s", device, stream, what);
    known->track = plain_track(w, parent, name);
  }
  return known;
}

static void begin_on_stream(struct writer *w, struct named_track *stream, int64_t start_ns, uint64_t *track) {
  /* A stream does one thing after the other; what its clock has overlapping goes beside. */
  *track = start_ns < stream->last ? plain_track(w, stream->track, "overlapping") : stream->track;
  begin_event(w, SLICE_BEGIN, *track);
}

static void end_on_stream(struct writer *w, struct named_track *stream, uint64_t track, int64_t start_ns,
                          int64_t end_ns) {
  end_event(w, start_ns);
  write_end(w, track, end_ns);
  stream->last = end_ns > stream->last ? end_ns : stream->last;
  sl_export_progress(w->export);
}

static int write_kernels(struct writer *w, uint64_t parent, struct sl_error *error) {
  struct sl_statement *kernels = NULL;
  struct named_tracks streams = {0};
  uint64_t track = 0;
  int r = sl_db_ask(w->export->db, sl_sql_export_kernels, SL_WITH(SL_NUMBER(":rank", w->rank)), &kernels, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(kernels, error)) > 0) {
    int64_t start = sl_column_int(kernels, SL_KERNEL_start);
    struct named_track *stream = stream_track(w, &streams, parent, sl_column_int(kernels, SL_KERNEL_device),
                                              sl_column_int(kernels, SL_KERNEL_stream), "");
    char *name = sl_demangle(sl_column_text(kernels, SL_KERNEL_name));
    char *short_name = name ? sl_short_name(name) : NULL;
    if (!stream || !short_name) {
      free(name);
      r = sl_no_memory(error);
      break;
    }
    begin_on_stream(w, stream, start, &track);
    sl_message_text(&w->event, EVENT_NAME, short_name);
    if (!sl_column_is_null(kernels, SL_KERNEL_collective)) {
      sl_message_text(&w->event, EVENT_CATEGORY, "collective");
      sl_message_fixed64(&w->event, EVENT_FLOW_END, (uint64_t)sl_column_int(kernels, SL_KERNEL_collective));
      debug_text(w, "operation", sl_column_text(kernels, SL_KERNEL_operation));
      debug_integer(w, "bytes", sl_column_int(kernels, SL_KERNEL_bytes));
      debug_integer(w, "sequence", sl_column_int(kernels, SL_KERNEL_seq));
    } else {
      sl_message_text(&w->event, EVENT_CATEGORY, "kernel");
    }
    debug_text(w, "kernel", name);
    end_on_stream(w, stream, track, start, sl_column_int(kernels, SL_KERNEL_end));
    free(name);
    free(short_name);
  }
  kernels = sl_statement_close(kernels);
  free_tracks(&streams);
  return r;
}

static int write_copies(struct writer *w, uint64_t parent, struct sl_error *error) {
  struct sl_statement *copies = NULL;
  struct named_tracks streams = {0};
  uint64_t track = 0;
  int r = sl_db_ask(w->export->db, sl_sql_perfetto_copies, SL_WITH(SL_NUMBER(":rank", w->rank)), &copies, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(copies, error)) > 0) {
    struct named_track *stream =
        stream_track(w, &streams, parent, sl_column_int(copies, 0), sl_column_int(copies, 1), " copies");
    if (!stream) {
      r = sl_no_memory(error);
      break;
    }
    begin_on_stream(w, stream, sl_column_int(copies, 4), &track);
    sl_message_text(&w->event, EVENT_NAME, sl_column_text(copies, 2));
    debug_integer(w, "bytes", sl_column_int(copies, 3));
    end_on_stream(w, stream, track, sl_column_int(copies, 4), sl_column_int(copies, 5));
  }
  copies = sl_statement_close(copies);
  free_tracks(&streams);
  return r;
}

/* NCCL's calls on their threads, each with a flow to its kernel. */
static int write_calls(struct writer *w, struct sl_error *error) {
  struct sl_statement *calls = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_perfetto_calls, SL_WITH(SL_NUMBER(":rank", w->rank)), &calls, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(calls, error)) > 0) {
    uint64_t track = thread_track(w, sl_column_int(calls, 1));
    begin_event(w, INSTANT, track);
    sl_message_text(&w->event, EVENT_NAME, sl_column_text(calls, 3));
    sl_message_text(&w->event, EVENT_CATEGORY, "collective");
    sl_message_fixed64(&w->event, EVENT_FLOW, (uint64_t)sl_column_int(calls, 0));
    debug_integer(w, "bytes", sl_column_int(calls, 4));
    debug_integer(w, "communicator", sl_column_int(calls, 5));
    debug_integer(w, "sequence", sl_column_int(calls, 6));
    end_event(w, sl_column_int(calls, 2));
    sl_export_progress(w->export);
  }
  calls = sl_statement_close(calls);
  return r;
}

static int write_marks(struct writer *w, struct sl_error *error) {
  struct sl_statement *marks = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_export_marks, SL_WITH(SL_NUMBER(":rank", w->rank)), &marks, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(marks, error)) > 0) {
    uint64_t track = thread_track(w, sl_column_int(marks, SL_MARK_tid));
    begin_event(w, INSTANT, track);
    sl_message_text(&w->event, EVENT_NAME, sl_column_text(marks, SL_MARK_name));
    sl_message_text(&w->event, EVENT_CATEGORY, "mark");
    if (*sl_column_text(marks, SL_MARK_domain))
      debug_text(w, "domain", sl_column_text(marks, SL_MARK_domain));
    if (!sl_column_is_null(marks, SL_MARK_value))
      debug_integer(w, "value", sl_column_int(marks, SL_MARK_value));
    if (!sl_column_is_null(marks, SL_MARK_module))
      debug_text(w, "module", sl_column_text(marks, SL_MARK_module));
    if (!sl_column_is_null(marks, SL_MARK_step))
      debug_integer(w, "step", sl_column_int(marks, SL_MARK_step));
    end_event(w, sl_column_int(marks, SL_MARK_at));
    sl_export_progress(w->export);
  }
  marks = sl_statement_close(marks);
  return r;
}

/* ---- memory ---- */

/* A category's number in the order of their first use; :category as text. */
struct categories {
  char *names[64];
  struct named_track counters[64];
  int count;
};

/* The counter of a category; the last one takes what is beyond the others. NULL: out of memory. */
static struct named_track *category_counter(struct writer *w, struct categories *categories, uint64_t parent,
                                            const char *name) {
  enum { LIMIT = sizeof(categories->names) / sizeof(categories->names[0]) };
  for (int i = 0; i < categories->count; i++)
    if (strcmp(categories->names[i], name) == 0)
      return &categories->counters[i];
  if (categories->count == LIMIT)
    return &categories->counters[LIMIT - 1];
  categories->names[categories->count] = strdup(name);
  if (!categories->names[categories->count])
    return NULL;
  struct named_track *counter = &categories->counters[categories->count++];
  counter->track = counter_track(w, parent, name);
  return counter;
}

/* Counters of the rank's modules, sorted by key: the module's id. */
struct modules {
  struct named_track *counters;
  int64_t count;
};

static int list_modules(struct writer *w, struct modules *modules, struct sl_error *error) {
  struct sl_statement *ids = NULL;
  int64_t count = 0;
  int r = sl_db_int(w->export->db, sl_sql_perfetto_module_count, &count, error);
  if (r == 0)
    r = sl_db_prepare(w->export->db, sl_sql_perfetto_modules, &ids, error);
  if (r < 0)
    return r;
  modules->counters = calloc(count + 1, sizeof(*modules->counters));
  if (!modules->counters)
    r = sl_no_memory(error);
  sl_bind_named_int(ids, ":rank", w->rank);
  while (r == 0 && modules->count < count && (r = sl_statement_step(ids, error)) > 0) {
    modules->counters[modules->count++].key = sl_column_int(ids, 0);
    r = 0;
  }
  ids = sl_statement_close(ids);
  return r;
}

static int compare_keys(const void *a, const void *b) {
  int64_t left = ((const struct named_track *)a)->key, right = ((const struct named_track *)b)->key;
  return (left > right) - (left < right);
}

/* The counter of a module, NULL without one; its track is made on first use. */
static struct named_track *module_counter(struct writer *w, struct modules *modules, struct sl_statement *names,
                                          uint64_t parent, int64_t module, struct sl_error *error) {
  struct named_track wanted = {.key = module};
  struct named_track *counter = bsearch(&wanted, modules->counters, modules->count, sizeof(wanted), compare_keys);
  if (counter && !counter->track) {
    sl_bind_named_int(names, ":id", module);
    const char *name = sl_statement_step(names, error) > 0 ? sl_column_text(names, 0) : "";
    counter->track = counter_track(w, parent, *name ? name : "(root)");
    sl_statement_reset(names);
  }
  return counter;
}

static void change_counter(struct writer *w, struct named_track *counter, int64_t at_ns, int64_t change) {
  counter->last += change;
  write_counter(w, counter->track, at_ns, counter->last);
}

/* Bytes over time of the rank's device: in all, by category, and by the module that owns them. */
static int write_memory(struct writer *w, int64_t device, struct sl_error *error) {
  struct sl_statement *memory = NULL, *names = NULL;
  struct categories categories = {.count = 0};
  struct modules modules = {0};
  struct named_track allocated = {0}, reserved = {0};
  uint64_t by_category = plain_track(w, w->process, "memory by category");
  uint64_t by_module = plain_track(w, w->process, "memory by module");
  allocated.track = counter_track(w, w->process, "allocated");
  reserved.track = counter_track(w, w->process, "reserved");
  int r = list_modules(w, &modules, error);
  if (r == 0)
    r = sl_db_prepare(w->export->db, sl_sql_perfetto_module_name, &names, error);
  if (r == 0)
    r = sl_db_prepare(w->export->db, sl_sql_export_memory, &memory, error);
  if (r < 0)
    goto finish;
  sl_bind_named_int(memory, ":rank", w->rank);
  while ((r = sl_statement_step(memory, error)) > 0) {
    int64_t at = sl_column_int(memory, SL_MEMORY_at), kind = sl_column_int(memory, SL_MEMORY_kind);
    int64_t bytes = sl_column_int(memory, SL_MEMORY_bytes);
    sl_export_progress(w->export);
    if (sl_column_int(memory, SL_MEMORY_device) != device)
      continue;
    bytes = kind == SL_BLOCK_FREED || kind == SL_SEGMENT_GIVEN_BACK ? -bytes : bytes;
    if (kind == SL_SEGMENT_TAKEN || kind == SL_SEGMENT_GIVEN_BACK) {
      change_counter(w, &reserved, at, bytes);
      continue;
    }
    struct named_track *category =
        category_counter(w, &categories, by_category, sl_column_text(memory, SL_MEMORY_category));
    struct named_track *module =
        module_counter(w, &modules, names, by_module, sl_column_int(memory, SL_MEMORY_module), error);
    if (!category) {
      r = sl_no_memory(error);
      break;
    }
    change_counter(w, &allocated, at, bytes);
    change_counter(w, category, at, bytes);
    if (module)
      change_counter(w, module, at, bytes);
  }

finish:
  memory = sl_statement_close(memory);
  names = sl_statement_close(names);
  for (int i = 0; i < categories.count; i++)
    free(categories.names[i]);
  free(modules.counters);
  return r;
}

static int write_ooms(struct writer *w, struct sl_error *error) {
  struct sl_statement *ooms = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_perfetto_ooms, SL_WITH(SL_NUMBER(":rank", w->rank)), &ooms, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(ooms, error)) > 0) {
    begin_event(w, INSTANT, w->process);
    sl_message_text(&w->event, EVENT_NAME, "out of memory");
    debug_integer(w, "requested bytes", sl_column_int(ooms, 1));
    end_event(w, sl_column_int(ooms, 0));
  }
  ooms = sl_statement_close(ooms);
  return r;
}

static int write_rank(struct writer *w, struct sl_statement *ranks, struct sl_error *error) {
  w->rank = sl_column_int(ranks, SL_RANK_rank);
  w->pid = sl_column_int(ranks, SL_RANK_pid);
  w->zero = sl_column_int(ranks, SL_RANK_zero);
  process_track(w, ranks);
  int r = write_memory(w, sl_column_int(ranks, SL_RANK_device), error);
  if (r == 0)
    r = write_ooms(w, error);
  if (r == 0)
    r = write_phases(w, error);
  if (r == 0)
    r = write_marks(w, error);
  if (r == 0)
    r = write_calls(w, error);
  if (r == 0) {
    uint64_t parent = plain_track(w, w->process, "GPU");
    r = write_kernels(w, parent, error);
    if (r == 0)
      r = write_copies(w, parent, error);
  }
  free_tracks(&w->threads);
  return r;
}

int sl_export_perfetto(struct sl_export *export, struct sl_error *error) {
  struct writer w = {.export = export};
  struct sl_statement *ranks = NULL;
  struct sl_export_file file;
  int r = sl_export_begin(export->output, false, &file, error);
  if (r < 0)
    return r;
  w.file = file.stream;
  r = sl_db_ask(export->db, sl_sql_export_ranks, SL_WITH(SL_WORD(":ranks", export->ranks)), &ranks, error);
  while (r == 0 && (r = sl_statement_step(ranks, error)) > 0)
    r = write_rank(&w, ranks, error);
  if (r == 0 && (w.packet.failed || w.event.failed || w.inner.failed))
    r = sl_no_memory(error);
  r = sl_export_end(&file, r, error);
  ranks = sl_statement_close(ranks);
  sl_message_free(&w.packet);
  sl_message_free(&w.event);
  sl_message_free(&w.inner);
  return r;
}

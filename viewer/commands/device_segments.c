/* `shardledger device --segments`: prints the map of PyTorch's segments. */
#include "commands/device_segments.h"

#include "commands/segment_map.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_SEGMENTS = 20, SHOWN_STEPS = 24, BATCH = 256 }; /* BATCH: maps that are made in one pass */

#define COUNT(columns) ((int)(sizeof(columns) / sizeof((columns)[0])))

struct instant {
  int64_t rank, device, at_ns;
  int64_t step;  /* -1: outside steps */
  int64_t asked; /* the step that was asked for, where `step` stands for it; else -1 */
  char what[64]; /* in words */
};

/* ---- which instant ---- */

/*
 * One row: rank, device, instant, step. A step that repeats another one is shown by that one's rows. Of several ranks,
 * the first that ran out of memory, or the one that reserved most.
 */
static const char *const instant_sql[] = {
    [SL_SEGMENTS_oom] = sl_sql_segments_at_oom,
    [SL_SEGMENTS_step] = sl_sql_segments_at_step,
    [SL_SEGMENTS_last] = sl_sql_segments_at_last,
    [SL_SEGMENTS_peak] = sl_sql_segments_at_peak,
};

/* 1 when there is one, 0 when not, or a negative errno. */
static int find_instant(struct sl_db *db, enum sl_segments_at at, const struct sl_segments_question *question,
                        struct instant *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, instant_sql[at], SL_WITH(SL_RANKS(question->ranks), SL_NUMBER(":step", question->step)),
                          &row, error);
  if (r > 0) {
    *out = (struct instant){
        .rank = sl_column_int(row, 0),
        .device = sl_column_int(row, 1),
        .at_ns = sl_column_int(row, 2),
        .step = sl_column_is_null(row, 3) ? -1 : sl_column_int(row, 3),
        .asked = sl_column_int(row, 4) == sl_column_int(row, 3) ? -1 : sl_column_int(row, 4),
    };
    const char *where = at == SL_SEGMENTS_oom    ? "where memory ran out, in step"
                        : at == SL_SEGMENTS_peak ? "at the peak of allocated memory, in step"
                                                 : "at the end of step";
    if (out->step < 0)
      snprintf(out->what, sizeof out->what, "%s",
               at == SL_SEGMENTS_oom    ? "where memory ran out, outside of any step"
               : at == SL_SEGMENTS_peak ? "at the peak of allocated memory, in a run without steps"
                                        : "at the end of a run without steps");
    else
      snprintf(out->what, sizeof out->what, "%s %" PRId64, where, out->step);
  }
  row = sl_statement_close(row);
  return r;
}

static int resolve(struct sl_db *db, const struct sl_segments_question *question, struct instant *out,
                   struct sl_error *error) {
  if (question->at != SL_SEGMENTS_fitting)
    return find_instant(db, question->at, question, out, error);
  int r = find_instant(db, SL_SEGMENTS_oom, question, out, error);
  return r == 0 ? find_instant(db, SL_SEGMENTS_last, question, out, error) : r;
}

static int say_why_not(struct sl_db *db, const struct sl_segments_question *question, struct sl_error *error) {
  int64_t steps = 0, pools = 0;
  int r = sl_db_int(db, sl_sql_segments_known, &steps, error);
  if (r == 0)
    r = sl_db_int(db, sl_sql_segments_pools, &pools, error);
  if (r < 0)
    return r;
  return sl_error_set(error, -ENODATA, "%s",
                      pools && !steps ? "PyTorch's caching allocator was not in use, so there are no segments: each "
                                        "tensor is a driver allocation"
                      : !steps ? "PyTorch's segments are in no step of this record; 'shardledger info' says what is"
                      : question->at == SL_SEGMENTS_oom
                          ? "no request was refused there; --at takes a step's number, peak or last as well"
                          : "PyTorch's segments are not known there; 'shardledger info' says what was recorded");
}

/* ---- the map ---- */

static void print_headline(struct sl_output *out, const struct instant *instant, const struct sl_segment_map *map) {
  char bytes[6][SL_UNIT_CHARS], legend[512] = "";
  int64_t returnable = 0, kept = 0, largest = 0, live = 0, whole = 0;
  size_t length = 0;
  for (size_t i = 0; i < map->count; i++) {
    const struct sl_map_segment *s = &map->segments[i];
    returnable += s->returnable_bytes;
    kept += s->kept_bytes;
    live += s->kept_bytes > 0 ? s->allocated_bytes + s->pending_bytes : 0;
    whole += s->kept_bytes > 0;
    largest = s->largest_free_bytes > largest ? s->largest_free_bytes : largest;
  }
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "PyTorch's segments on rank %" PRId64 "'s GPU %" PRId64 " %s", instant->rank,
                   instant->device, instant->what);
  if (instant->asked >= 0)
    sl_output_line(out, "     Step %" PRId64 " repeats it; only its rows are kept", instant->asked);
  sl_output_line(
      out, "     %zu segments, %s reserved: %s allocated, %s pending, %s free, the largest block %s", map->count,
      sl_format_bytes(bytes[0], map->reserved_bytes, out->exact_bytes),
      sl_format_bytes(bytes[1], map->allocated_bytes, out->exact_bytes),
      sl_format_bytes(bytes[2], map->pending_bytes, out->exact_bytes),
      sl_format_bytes(bytes[3], map->reserved_bytes - map->allocated_bytes - map->pending_bytes, out->exact_bytes),
      sl_format_bytes(bytes[4], largest, out->exact_bytes));
  sl_output_line(
      out, "     torch.cuda.empty_cache() would return %s; %s in %" PRId64 " segment%s stay, for %s that live there",
      sl_format_bytes(bytes[0], returnable, out->exact_bytes), sl_format_bytes(bytes[1], kept, out->exact_bytes), whole,
      whole == 1 ? "" : "s", sl_format_bytes(bytes[2], live, out->exact_bytes));
  if (map->outside_bytes)
    sl_output_line(out, "     %s more are in no segment that was recorded",
                   sl_format_bytes(bytes[0], map->outside_bytes, out->exact_bytes));
  for (size_t i = 0; i < map->category_count && length < sizeof legend; i++)
    if (map->categories[i].bytes)
      length += (size_t)snprintf(legend + length, sizeof legend - length, "%s%c %s %s", length ? ", " : "",
                                 map->categories[i].letter, map->categories[i].name,
                                 sl_format_bytes(bytes[0], map->categories[i].bytes, out->exact_bytes));
  sl_output_line(out, "%s", "");
  if (length)
    sl_output_line(out, "%s", legend);
  sl_output_line(out, ". free, ~ freed but still used by a stream; small letters where less than half is used");
  sl_output_line(out, "%s", "");
}

/* What keeps a segment: cells of the columns from keeper_id on. */
static int cells_keeper(struct sl_table *table, struct sl_statement *keeper, const struct sl_map_segment *s,
                        struct sl_error *error) {
  enum { CELLS = 7 };
  int r = 0;
  if (s->keeper) {
    sl_bind_named_int(keeper, ":id", s->keeper);
    r = sl_statement_step(keeper, error);
  }
  for (int i = 0; i < CELLS; i++)
    if (s->keeper && r > 0)
      sl_cell_column(table, keeper, i);
    else
      sl_cell_null(table);
  sl_statement_reset(keeper);
  return r < 0 ? r : 0;
}

static int print_map(struct sl_db *db, struct sl_output *out, const struct instant *instant,
                     const struct sl_segment_map *map, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"at_ns", "At", SL_UNIT_instant, SL_COLUMN_DATA_ONLY},
      {"address", "Segment", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"stream", "Stream", SL_UNIT_text, 0},
      {"pool", "Pool", SL_UNIT_text, 0},
      {"expandable", "Expandable", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"map", "Map", SL_UNIT_text, 0},
      {"blocks", "Blocks", SL_UNIT_number, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"pending_bytes", "Pending", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"largest_free_bytes", "Largest free", SL_UNIT_bytes, 0},
      {"returnable_bytes", "Returnable", SL_UNIT_bytes, SL_COLUMN_DATA_ONLY},
      {"kept_bytes", "Kept", SL_UNIT_bytes, 0},
      {"keeper_id", "Kept by", SL_UNIT_number, 0},
      {"keeper_bytes", "Bytes", SL_UNIT_bytes, 0},
      {"keeper_category", "Category", SL_UNIT_text, 0},
      {"keeper_name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"keeper_module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"keeper_made_in", "Made in", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
      {"keeper_step", "Step", SL_UNIT_number, 0},
  };
  struct sl_statement *keeper = NULL;
  struct sl_table *table = NULL;
  char text[40];
  size_t left = 0;
  int r = sl_db_prepare(db, sl_sql_segments_keeper, &keeper, error);
  if (r < 0)
    return r;
  table = sl_table_begin(out, "segments", columns, COUNT(columns));
  for (size_t i = 0; i < map->count && r == 0; i++) {
    const struct sl_map_segment *s = &map->segments[i];
    if (out->format == SL_FORMAT_text && i >= SHOWN_SEGMENTS) {
      left++;
      continue;
    }
    sl_cell_int(table, instant->rank);
    sl_cell_int(table, instant->at_ns);
    snprintf(text, sizeof text, "%" PRIx64, (uint64_t)s->address);
    sl_cell_text(table, text);
    sl_cell_int(table, s->bytes);
    snprintf(text, sizeof text, s->stream ? "%" PRIx64 : "default", (uint64_t)s->stream);
    sl_cell_text(table, text);
    sl_cell_text(table, s->pool ? s->pool : s->small ? "small" : "large");
    sl_cell_int(table, s->expandable);
    sl_cell_text(table, s->drawn);
    sl_cell_int(table, s->blocks);
    sl_cell_int(table, s->allocated_bytes);
    sl_cell_int(table, s->pending_bytes);
    sl_cell_int(table, s->largest_free_bytes);
    sl_cell_int(table, s->returnable_bytes);
    sl_cell_int(table, s->kept_bytes);
    r = cells_keeper(table, keeper, s, error);
  }
  table = sl_table_end(table);
  keeper = sl_statement_close(keeper);
  if (left)
    sl_output_line(out, "and %zu that keep less; all are in --json", left);
  return r;
}

/* ---- over the steps ---- */

/* Whether text shows a step: the first three, the last, and others evenly between. Data has them all. */
static bool is_shown(const struct sl_output *out, int64_t place, int64_t count) {
  if (out->format != SL_FORMAT_text || count <= SHOWN_STEPS || place < 3 || place == count - 1)
    return true;
  const int64_t slots = SHOWN_STEPS - 4;
  return place * slots / count != (place - 1) * slots / count;
}

struct step {
  int64_t columns[5]; /* step, reserved, allocated, cached, largest free */
  int64_t end_ns;
};

/* The steps to show, of those that tell what was reserved; *out is the caller's to free. */
static int read_steps(struct sl_db *db, const struct sl_output *out_to, int64_t rank, struct step **out, size_t *count,
                      struct sl_error *error) {
  struct sl_statement *rows = NULL;
  int r = sl_db_ask(db, sl_sql_segments_steps, SL_WITH(SL_NUMBER(":rank", rank)), &rows, error);
  if (r < 0)
    return r;
  for (int64_t place = 0; (r = sl_statement_step(rows, error)) > 0; place++) {
    if (!*out && !(*out = calloc((size_t)sl_column_int(rows, 6), sizeof **out))) {
      r = sl_no_memory(error);
      break;
    }
    if (!is_shown(out_to, place, sl_column_int(rows, 6)))
      continue;
    struct step *step = &(*out)[(*count)++];
    for (int i = 0; i < 5; i++)
      step->columns[i] = sl_column_int(rows, i);
    step->end_ns = sl_column_int(rows, 5);
  }
  rows = sl_statement_close(rows);
  return r;
}

static void cells_step(struct sl_table *table, const struct instant *instant, const struct step *step,
                       const struct sl_segment_map *map) {
  int64_t returnable = 0, kept = 0, thin = 0;
  for (size_t i = 0; i < map->count; i++) {
    returnable += map->segments[i].returnable_bytes;
    kept += map->segments[i].kept_bytes;
    thin += map->segments[i].thin_bytes;
  }
  sl_cell_int(table, instant->rank);
  for (int i = 0; i < 5; i++)
    sl_cell_int(table, step->columns[i]);
  sl_cell_int(table, (int64_t)map->count);
  sl_cell_int(table, returnable);
  sl_cell_int(table, kept);
  sl_cell_int(table, thin);
}

static int compare_instants(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Steps that repeat others end, in this table, with those: so instants are sorted, and each step finds its own. */
static int print_batch(struct sl_db *db, struct sl_table *table, const struct instant *instant,
                       const struct step *steps, size_t count, struct sl_error *error) {
  struct sl_segment_map *maps[BATCH];
  int64_t at_ns[BATCH];
  for (size_t i = 0; i < count; i++)
    at_ns[i] = steps[i].end_ns;
  qsort(at_ns, count, sizeof *at_ns, compare_instants);
  int r = sl_segment_maps_read(db, instant->rank, instant->device, at_ns, count, maps, error);
  if (r < 0)
    return r;
  for (size_t i = 0; i < count; i++) {
    size_t own = 0;
    while (at_ns[own] != steps[i].end_ns)
      own++;
    cells_step(table, instant, &steps[i], maps[own]);
  }
  for (size_t i = 0; i < count; i++)
    maps[i] = sl_segment_map_free(maps[i]);
  return 0;
}

static int print_steps(struct sl_db *db, struct sl_output *out, const struct instant *instant, struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
      {"step", "Step", SL_UNIT_number, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"cached_bytes", "Cached", SL_UNIT_bytes, 0},
      {"largest_free_bytes", "Largest free", SL_UNIT_bytes, 0},
      {"segments", "Segments", SL_UNIT_number, 0},
      {"returnable_bytes", "Returnable", SL_UNIT_bytes, 0},
      {"kept_bytes", "Kept by live memory", SL_UNIT_bytes, 0},
      {"thin_bytes", "by less than a tenth", SL_UNIT_bytes, 0},
  };
  struct step *steps = NULL;
  struct sl_table *table = NULL;
  size_t count = 0;
  int r = read_steps(db, out, instant->rank, &steps, &count, error);
  if (r == 0) {
    sl_output_line(out, "%s", "");
    sl_output_styled(out, SL_STYLE_bold,
                     "PyTorch's segments on rank %" PRId64 "'s GPU %" PRId64 " at the end of each step", instant->rank,
                     instant->device);
    sl_output_line(out, "%s", "");
    table = sl_table_begin(out, "steps", columns, COUNT(columns));
  }
  for (size_t i = 0; i < count && r == 0; i += BATCH)
    r = print_batch(db, table, instant, steps + i, count - i < BATCH ? count - i : BATCH, error);
  table = sl_table_end(table);
  free(steps);
  return r;
}

int sl_print_segments(struct sl_db *db, struct sl_output *out, const struct sl_segments_question *question,
                      struct sl_error *error) {
  struct instant instant;
  struct sl_segment_map *map = NULL;
  int r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = question->by_step ? find_instant(db, SL_SEGMENTS_last, question, &instant, error)
                          : resolve(db, question, &instant, error);
  if (r == 0 || (r > 0 && question->by_step && instant.step < 0))
    return say_why_not(db, question, error);
  if (r < 0)
    return r;
  if (question->by_step)
    return print_steps(db, out, &instant, error);
  r = sl_segment_maps_read(db, instant.rank, instant.device, &instant.at_ns, 1, &map, error);
  if (r < 0)
    return r;
  print_headline(out, &instant, map);
  r = print_map(db, out, &instant, map, error);
  map = sl_segment_map_free(map);
  return r;
}

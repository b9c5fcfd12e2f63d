/* Prints pinned host memory over a rank's life. */
#include "commands/device_pinned.h"

#include "output/units.h"
#include "storage/grow.h"
#include "viewer_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct life {
  int64_t peak_bytes, peak_ns, bytes; /* the last: at the end */
  int64_t *steps, *at_steps;          /* numbers of the steps, and the bytes at their ends; owned */
  size_t count;
};

struct growth {
  size_t from;   /* of the bytes: from here on each is more than the one before, or at least no less */
  int64_t bytes; /* a step, on average from there to the last; 0: it does not grow */
};

/*
 * Of the bytes at the ends of steps. Grown is what never falls in the second half, and rises there in two steps at the
 * least: caches fill up once, at the beginning, and allocators that round up do not grow in every step.
 */
static struct growth growth_of(const int64_t *bytes, size_t count) {
  enum { STEPS_MIN = 4, RISES_MIN = 2 };
  const struct growth none = {0};
  const size_t middle = count / 2;
  size_t from = middle, rises = 0;
  if (count < STEPS_MIN)
    return none;
  for (size_t i = middle + 1; i < count; i++) {
    if (bytes[i] < bytes[i - 1])
      return none;
    rises += bytes[i] > bytes[i - 1];
  }
  if (rises < RISES_MIN)
    return none;
  while (from > 0 && bytes[from - 1] < bytes[from])
    from--;
  return (struct growth){from, (bytes[count - 1] - bytes[from]) / (int64_t)(count - 1 - from)};
}

static int step_add(struct life *life, int64_t step, struct sl_error *error) {
  int64_t *steps = sl_list_grow(life->steps, life->count, sizeof *steps);
  if (steps)
    life->steps = steps;
  int64_t *at_steps = steps ? sl_list_grow(life->at_steps, life->count, sizeof *at_steps) : NULL;
  if (!at_steps)
    return sl_no_memory(error);
  life->at_steps = at_steps;
  life->steps[life->count] = step;
  life->at_steps[life->count++] = life->bytes;
  return 0;
}

/* Everything that changed the bytes, and the ends of the steps, in the order of time. */
static int life_read(struct sl_db *db, int64_t rank, struct life *out, struct sl_error *error) {
  struct sl_statement *rows = NULL;
  int r = sl_db_ask(db, sl_sql_device_pinned_life, SL_WITH(SL_NUMBER(":rank", rank)), &rows, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(rows, error)) > 0) {
    out->bytes += sl_column_int(rows, 1);
    if (out->bytes > out->peak_bytes) {
      out->peak_bytes = out->bytes;
      out->peak_ns = sl_column_int(rows, 0);
    }
    if (!sl_column_is_null(rows, 2) && (r = step_add(out, sl_column_int(rows, 2), error)) < 0)
      break;
  }
  rows = sl_statement_close(rows);
  return r;
}

static void print_text(struct sl_output *out, const struct life *life, const struct growth *growth) {
  char peak[SL_UNIT_CHARS], end[SL_UNIT_CHARS], each[SL_UNIT_CHARS], grows[SL_UNIT_CHARS + 48] = "";
  if (growth->bytes)
    snprintf(grows, sizeof grows, ", grows %s a step from step %" PRId64 " on",
             sl_format_bytes(each, growth->bytes, out->exact_bytes), life->steps[growth->from]);
  sl_output_line(out, "%s", "");
  sl_output_line(out, "Pinned host memory: peak %s, %s at the end%s",
                 sl_format_bytes(peak, life->peak_bytes, out->exact_bytes),
                 sl_format_bytes(end, life->bytes, out->exact_bytes), grows);
}

static void print_data(struct sl_output *out, int64_t rank, const struct life *life, const struct growth *growth) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"peak_bytes", "Peak", SL_UNIT_bytes, 0},
      {"peak_ns", "At", SL_UNIT_instant, 0},
      {"end_bytes", "At the end", SL_UNIT_bytes, 0},
      {"growth_bytes", "Grows a step", SL_UNIT_bytes, 0},
      {"growth_from_step", "From step", SL_UNIT_number, 0},
  };
  struct sl_table *table = sl_table_begin(out, "pinned_life", columns, sizeof columns / sizeof columns[0]);
  if (life->peak_bytes) {
    sl_cell_int(table, rank);
    sl_cell_int(table, life->peak_bytes);
    sl_cell_int(table, life->peak_ns);
    sl_cell_int(table, life->bytes);
    sl_cell_int(table, growth->bytes);
    if (growth->bytes)
      sl_cell_int(table, life->steps[growth->from]);
    else
      sl_cell_null(table);
  }
  table = sl_table_end(table);
}

int sl_print_pinned_life(struct sl_db *db, struct sl_output *out, int64_t rank, struct sl_error *error) {
  struct life life = {0};
  int r = life_read(db, rank, &life, error);
  if (r == 0) {
    const struct growth growth = growth_of(life.at_steps, life.count);
    if (out->format != SL_FORMAT_text)
      print_data(out, rank, &life, &growth);
    else if (life.peak_bytes)
      print_text(out, &life, &growth);
  }
  free(life.steps);
  free(life.at_steps);
  return r;
}

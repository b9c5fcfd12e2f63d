/*
 * Text keeps to a screen: of many rows it shows some, and says so in one line. Rows that will not be shown go while
 * others still come, so that memory is that of a few screens whatever there is.
 */
#include "output/table_cells.h"
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
  SCREEN = 48,       /* lines of a command's text, about */
  ROWS = 40,         /* of one table, where nothing else is there */
  LEAST = 10,        /* of one below much else */
  SPARE = 2,         /* as few more are shown, too: the line that tells of them is no shorter */
  PRUNE_ROWS = 2048, /* waiting rows from which on it is looked at whether they are too many */
};

void sl_table_keep(struct sl_table *table, int most, const char *by) {
  if (!table)
    return;
  table->most = most;
  table->by = by;
}

void sl_table_add_up(struct sl_table *table, const char *column) {
  if (table)
    table->sum = column;
}

/* Rows that are shown: asked for, or what there is room for. */
static int64_t rows_shown(const struct sl_table *table) {
  const struct sl_output *out = table->out;
  if (out->limit)
    return out->limit;
  if (table->most == SL_WHOLE)
    return SL_ALL_ROWS;
  int64_t room = SCREEN - out->lines - 2; /* headings, and the line below */
  room = room < LEAST ? LEAST : room > ROWS ? ROWS : room;
  return table->most && table->most < room ? table->most : room;
}

static int column_find(const struct sl_table *table, const char *name) {
  for (int i = 0; name && i < table->count; i++)
    if (strcasecmp(table->columns[i].name, name) == 0 || strcasecmp(table->columns[i].header, name) == 0)
      return i;
  return -1;
}

struct place { /* of a row that waits */
  const struct cell *cell;
  size_t row;
};

/* The largest number first, then texts by the alphabet; equal ones as they came. */
static int compare_places(const void *left, const void *right) {
  const struct place *a = left, *b = right;
  if (a->cell->order != b->cell->order)
    return a->cell->order > b->cell->order ? -1 : 1;
  const int order = strcmp(a->cell->text, b->cell->text);
  return order ? order : a->row < b->row ? -1 : 1;
}

static int compare_largest(const void *left, const void *right) {
  const struct place *a = left, *b = right;
  if (a->cell->order != b->cell->order)
    return a->cell->order > b->cell->order ? -1 : 1;
  return a->row < b->row ? -1 : a->row > b->row;
}

static int compare_rows(const void *left, const void *right) {
  const struct place *a = left, *b = right;
  return a->row < b->row ? -1 : a->row > b->row;
}

/* Leaves these of the waiting rows, in this order. false: no memory, and nothing was changed. */
static bool rows_leave(struct sl_table *table, const struct place *places, size_t count) {
  const size_t columns = (size_t)table->count;
  const int sum = column_find(table, table->sum);
  struct cell *kept = calloc(count * columns + 1, sizeof *kept);
  if (!kept)
    return false;
  for (size_t i = 0; i < count; i++)
    for (size_t c = 0; c < columns; c++) {
      kept[i * columns + c] = table->cells[places[i].row * columns + c];
      table->cells[places[i].row * columns + c].text = NULL;
    }
  for (size_t c = 0; c < table->cell_count; c++) {
    if (sum >= 0 && c % columns == (size_t)sum && table->cells[c].text && isfinite(table->cells[c].order))
      table->not_kept_sum += table->cells[c].order;
    free(table->cells[c].text);
  }
  table->not_kept += (int64_t)(table->cell_count / columns - count);
  free(table->cells);
  table->cells = kept;
  table->cell_count = count * columns;
  table->cell_capacity = count * columns + 1;
  return true;
}

/* Of the rows that wait, those that are to be shown. sorts: in the order that was asked for, else as they came. */
static void rows_choose(struct sl_table *table, bool sorts) {
  const int sort = column_find(table, table->out->sort), by = sort >= 0 ? sort : column_find(table, table->by);
  const size_t rows = table->cell_count / (size_t)table->count;
  const int64_t shown = rows_shown(table);
  const int64_t spare = table->out->limit || shown == SL_ALL_ROWS ? 0 : SPARE;
  const size_t keep = (int64_t)rows > shown + spare ? (size_t)shown : rows;
  if (keep == rows && !(sorts && sort >= 0))
    return;
  struct place *places = calloc(rows + 1, sizeof *places);
  for (size_t i = 0; i < rows && places; i++)
    places[i] = (struct place){&table->cells[i * (size_t)table->count + (size_t)(by < 0 ? 0 : by)], i};
  if (places && by >= 0)
    qsort(places, rows, sizeof *places, sort >= 0 ? compare_places : compare_largest);
  if (places && !(sorts && sort >= 0))
    qsort(places, keep, sizeof *places, compare_rows);
  if (!places || !rows_leave(table, places, keep))
    table->out->failed = -ENOMEM;
  free(places);
}

void sl_table_prune(struct sl_table *table) {
  const size_t rows = table->cell_count / (size_t)table->count;
  if (rows >= PRUNE_ROWS && (int64_t)rows / 2 >= rows_shown(table))
    rows_choose(table, false);
}

void sl_table_choose(struct sl_table *table) {
  table->out->sorted |= column_find(table, table->out->sort) >= 0;
  rows_choose(table, true);
}

void sl_table_say_left_out(struct sl_table *table) {
  char bytes[SL_UNIT_CHARS], sum[SL_UNIT_CHARS + 40] = "";
  const int by = table->out->sort ? -1 : column_find(table, table->by);
  if (!table->not_kept)
    return;
  if (table->sum)
    snprintf(sum, sizeof sum, ", which have %s together,",
             sl_format_bytes(bytes, (int64_t)table->not_kept_sum, table->out->exact_bytes));
  sl_output_styled(table->out, SL_STYLE_dim,
                   "%" PRId64 " of %" PRId64 " rows%s%s; the others%s with --limit all, --csv or --json",
                   table->rows - table->not_kept, table->rows, by >= 0 ? ", those with the largest " : "",
                   by >= 0 ? table->columns[by].header : "", sum);
}

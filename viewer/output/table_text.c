/* A table as text: the widths of its columns, what becomes of them on a narrow terminal, its rows. */
#include "output/table_cells.h"
#include "output/text.h"
#include "output/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_TEXT_WIDTH 16    /* text columns are not squeezed below this on narrow terminals */
#define LEAST_WRAPPED_WIDTH 30 /* what they leave to columns that wrap */

/* The middle of a long name is its least telling part. */
static void shorten(struct cell *cell, int width, bool utf8) {
  const char *mark = utf8 ? "…" : "..";
  int keep = width - (utf8 ? 1 : 2);
  int length = (int)strlen(cell->text);
  /* Only plain ASCII is cut, where bytes are columns; other text keeps its width. */
  if (cell->width <= width || cell->width != length || keep < 4)
    return;
  char *text = NULL;
  if (asprintf(&text, "%.*s%s%s", keep / 2, cell->text, mark, cell->text + length - (keep - keep / 2)) < 0)
    return;
  free(cell->text);
  cell->text = text;
  cell->width = width;
}

static void print_cell(struct sl_table *table, const struct cell *cell, int column, bool last) {
  const struct sl_terminal *terminal = &table->out->terminal;
  FILE *file = table->out->file;
  int padding = table->widths[column] - cell->width;
  bool styled = cell->style != SL_STYLE_plain;

  padding = padding < 0 ? 0 : padding;
  if (sl_unit_is_on_right(table->columns[column].unit))
    fprintf(file, "%*s", padding, "");
  fprintf(file, "%s%s%s", styled ? sl_style(terminal, cell->style) : "", cell->text,
          styled ? sl_style(terminal, SL_STYLE_plain) : "");
  if (!sl_unit_is_on_right(table->columns[column].unit) && !last)
    fprintf(file, "%*s", padding, "");
}

/* One cell of a row, the blanks before it, and the line break behind the last one. */
static void print_in_row(struct sl_table *table, const struct cell *cell, int column) {
  int first = 0, last = table->count - 1;
  while (first < last && table->widths[first] < 0)
    first++;
  while (last > first && table->widths[last] < 0)
    last--;
  if (table->widths[column] >= 0) {
    if (column > first)
      fputs("  ", table->out->file);
    print_cell(table, cell, column, column == last);
  }
  if (column == table->count - 1)
    fputc('\n', table->out->file);
}

static void print_header(struct sl_table *table) {
  for (int i = 0; i < table->count; i++) {
    /* The result of a query names its columns itself, so headers are no safer than cells. */
    struct cell cell = {.text = sl_clean_text(table->columns[i].header), .style = SL_STYLE_bold};
    if (!cell.text) {
      sl_table_failed(table);
      return;
    }
    cell.width = sl_text_width(cell.text);
    print_in_row(table, &cell, i);
    free(cell.text);
  }
}

/* What the words of a column need: they stay whole, so that a variable can be copied from a sentence. */
static int longest_word(const struct sl_table *table, int column) {
  int longest = 0;
  for (size_t c = column; c < table->cell_count; c += table->count)
    for (const char *word = table->cells[c].text; *word; word += strspn(word, " ")) {
      int length = (int)strcspn(word, " ");
      longest = length > longest ? length : longest;
      word += length;
    }
  return longest;
}

static int least_width(const struct sl_table *table, int column) {
  int longest = table->columns[column].flags & SL_COLUMN_SENTENCE ? longest_word(table, column) : 0;
  return longest > LEAST_TEXT_WIDTH ? longest : LEAST_TEXT_WIDTH;
}

/* Takes one column off the widest text. Returns what that saves, or 0 when texts are as narrow as they may be. */
static int squeeze_text(struct sl_table *table) {
  int widest = -1;
  for (int i = 0; i < table->count; i++)
    if (table->columns[i].unit == SL_UNIT_text && (widest < 0 || table->widths[i] > table->widths[widest]) &&
        table->widths[i] > least_width(table, i))
      widest = i;
  if (widest < 0)
    return 0;
  table->widths[widest]--;
  return 1;
}

/* Hides the optional column whose largest number is the smallest of all. Returns the width that saves, or 0. */
static int leave_out_smallest(struct sl_table *table) {
  int smallest = -1;
  double least = 0;
  for (int i = 0; i < table->count; i++) {
    double largest = 0;
    if (table->widths[i] < 0 || !(table->columns[i].flags & SL_COLUMN_HIDE_EMPTY) ||
        !sl_unit_is_on_right(table->columns[i].unit))
      continue;
    for (size_t c = i; c < table->cell_count; c += table->count)
      largest = fmax(largest, table->cells[c].size);
    if (smallest < 0 || largest < least) {
      smallest = i;
      least = largest;
    }
  }
  if (smallest < 0)
    return 0;
  int saved = table->widths[smallest] + 2;
  size_t used = strlen(table->left_out);
  snprintf(table->left_out + used, sizeof(table->left_out) - used, "%s%s", used ? ", " : "",
           table->columns[smallest].header);
  table->widths[smallest] = -1;
  return saved;
}

static int full_width(const struct sl_table *table, int column) {
  int width = sl_text_width(table->columns[column].header);
  for (size_t c = column; c < table->cell_count; c += table->count)
    if (table->cells[c].width > width)
      width = table->cells[c].width;
  return width;
}

/* What all rows have in common is said in a line above the table. Returns the width that this saves. */
static int lift_common(struct sl_table *table) {
  int saved = 0;
  for (int i = 0; i < table->count; i++) {
    bool common = table->widths[i] >= 0 && (table->columns[i].flags & SL_COLUMN_COMMON) && table->cell_count > 0;
    for (size_t c = i; common && c < table->cell_count; c += table->count)
      common = strcmp(table->cells[c].text, table->cells[i].text) == 0;
    if (!common)
      continue;
    fprintf(table->out->file, "%s%s %s", saved ? ", " : "", table->columns[i].header, table->cells[i].text);
    saved += table->widths[i] + 2;
    table->widths[i] = -1;
  }
  if (saved)
    fputc('\n', table->out->file);
  return saved;
}

static bool wraps(const struct sl_table *table) {
  for (int i = 0; i < table->count; i++)
    if (table->widths[i] >= 0 && (table->columns[i].flags & SL_COLUMN_WRAP))
      return true;
  return false;
}

/*
 * Finds the widths from the rows that wait. On a terminal that is too narrow, texts lose their middle and then the
 * least columns go, which is said below the table. Where even that is not enough, the texts stay whole. Returns whether
 * columns that may wrap are too wide together.
 */
static bool fix_widths(struct sl_table *table, bool whole) {
  int total = -2;
  for (int i = 0; i < table->count; i++) {
    bool empty = true;
    table->widths[i] = full_width(table, i);
    for (size_t c = i; c < table->cell_count; c += table->count)
      empty &= table->cells[c].size == 0;
    if (!sl_table_shows(table, i) || (empty && (table->columns[i].flags & SL_COLUMN_HIDE_EMPTY)))
      table->widths[i] = -1;
    else
      total += table->widths[i] + 2;
  }
  int room = table->out->terminal.width;
  if (room > 0 && total > room && whole)
    total -= lift_common(table);
  if (room > 0 && total > room && whole && wraps(table))
    return true;
  while (room > 0 && total > room) {
    int saved = squeeze_text(table);
    saved = saved > 0 ? saved : leave_out_smallest(table);
    if (saved == 0)
      break;
    total -= saved;
  }
  for (int i = 0; i < table->count && room > 0 && total > room; i++)
    if (table->widths[i] >= 0)
      table->widths[i] = full_width(table, i);
  return false;
}

/* How much of a sentence goes into one line of a column. */
static size_t line_length(const char *text, int width) {
  size_t length = strlen(text);
  if (sl_text_width(text) <= width)
    return length;
  size_t end = 0;
  for (size_t i = 1; i < length && (int)i <= width; i++)
    if (text[i] == ' ')
      end = i;
  return end ? end : strcspn(text, " ");
}

/* A row, in as many lines as its longest sentence needs; all other cells stand in the first one. */
static void print_row(struct sl_table *table, struct cell *cells) {
  bool first = true;
  for (bool more = true; more; first = false) {
    more = false;
    table->out->lines++;
    for (int i = 0; i < table->count; i++) {
      struct cell line = cells[i];
      bool sentence = (table->columns[i].flags & SL_COLUMN_SENTENCE) && table->widths[i] > 0;
      if (sentence) {
        const char *rest = cells[i].text + cells[i].printed;
        size_t length = line_length(rest, table->widths[i]);
        line.text = strndup(rest, length);
        if (!line.text) {
          sl_table_failed(table);
          return;
        }
        line.width = sl_text_width(line.text);
        cells[i].printed += length + strspn(rest + length, " ");
        more |= cells[i].text[cells[i].printed] != '\0';
      } else if (!first) {
        line.text = "";
        line.width = 0;
      }
      print_in_row(table, &line, i);
      if (sentence)
        free(line.text);
    }
  }
}

static void print_rows(struct sl_table *table) {
  for (size_t c = 0; c < table->cell_count; c++) {
    int column = (int)(c % table->count);
    if (table->columns[column].unit == SL_UNIT_text && table->widths[column] > 0 &&
        !(table->columns[column].flags & SL_COLUMN_SENTENCE))
      shorten(&table->cells[c], table->widths[column], table->out->terminal.utf8);
    if (column == table->count - 1)
      print_row(table, &table->cells[c - column]);
  }
}

/* The table several times, one below the other: each with as many of the columns that wrap as there is room for. */
static void print_wrapped(struct sl_table *table) {
  int room = table->out->terminal.width + 2, *wide = calloc((size_t)table->count, sizeof *wide);
  if (!wide) {
    sl_table_failed(table);
    return;
  }
  for (int i = 0; i < table->count; i++)
    if (table->widths[i] >= 0 && !(table->columns[i].flags & SL_COLUMN_WRAP))
      room -= table->widths[i] + 2;
  for (int saved = 1; room < LEAST_WRAPPED_WIDTH && saved > 0; room += saved)
    saved = squeeze_text(table);
  memcpy(wide, table->widths, (size_t)table->count * sizeof *wide);
  for (int next = 0, part = 0; next < table->count; part++) {
    int left = room, shown = 0;
    for (int i = 0; i < table->count; i++) {
      if (!(table->columns[i].flags & SL_COLUMN_WRAP) || wide[i] < 0)
        continue;
      bool fits = i >= next && (shown == 0 || wide[i] + 2 <= left);
      table->widths[i] = fits ? wide[i] : -1;
      if (!fits && i >= next)
        left = -1; /* nor do those behind it stand before it */
      if (!fits)
        continue;
      left -= wide[i] + 2;
      shown = i + 1;
    }
    if (!shown)
      break;
    if (part > 0)
      sl_output_line(table->out, "%s", "");
    print_header(table);
    print_rows(table);
    next = shown;
  }
  free(wide);
}

void sl_table_print(struct sl_table *table, bool whole) {
  bool wrapped = false;
  if (table->stream_rows >= 0) { /* the first time */
    wrapped = fix_widths(table, whole);
    if (!wrapped)
      print_header(table);
  }
  if (wrapped)
    print_wrapped(table);
  else
    print_rows(table);
  for (size_t c = 0; c < table->cell_count; c++)
    free(table->cells[c].text);
  table->cell_count = 0;
}

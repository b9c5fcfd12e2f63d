#include "output/table_cells.h"
#include "output/text.h"
#include "output/units.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 24
#define LEAST_TEXT_WIDTH 16 /* text columns are not squeezed below this on narrow terminals */

void sl_output_open(struct sl_output *out, enum sl_format format, bool exact_bytes) {
  memset(out, 0, sizeof(*out));
  out->file = stdout;
  out->format = format;
  out->exact_bytes = exact_bytes;
  sl_terminal_detect(stdout, &out->terminal);
}

void sl_output_document(struct sl_output *out) {
  out->document = true;
  if (out->format == SL_FORMAT_json)
    fputc('{', out->file);
}

int sl_output_close(struct sl_output *out) {
  if (out->document && out->format == SL_FORMAT_json)
    fputs("}\n", out->file);
  if (out->sort && !out->sorted && out->tables && out->failed == 0) {
    sl_complain("--sort: no table here has a column '%s'; name one as its heading or as --csv does", out->sort);
    out->failed = -EINVAL;
    return out->failed;
  }
  errno = 0;
  if ((fflush(out->file) != 0 || ferror(out->file)) && out->failed == 0)
    out->failed = errno ? -errno : -EIO;
  if (out->failed == -ENOMEM)
    sl_complain("out of memory: the results are not whole");
  else if (out->failed < 0)
    sl_complain("the results could not be written: %s", strerror(-out->failed));
  return out->failed;
}

static void output_line(struct sl_output *out, enum sl_style style, const char *format, va_list arguments) {
  char *text = NULL;
  char *clean = NULL;
  if (out->format != SL_FORMAT_text)
    return;
  if (vasprintf(&text, format, arguments) < 0)
    text = NULL;
  clean = text ? sl_clean_text(text) : NULL;
  if (!clean)
    out->failed = out->failed ? out->failed : -ENOMEM;
  else if (out->lines++, style == SL_STYLE_plain)
    fprintf(out->file, "%s\n", clean);
  else
    fprintf(out->file, "%s%s%s\n", sl_style(&out->terminal, style), clean, sl_style(&out->terminal, SL_STYLE_plain));
  free(clean);
  free(text);
}

void sl_output_line(struct sl_output *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  output_line(out, SL_STYLE_plain, format, arguments);
  va_end(arguments);
}

void sl_output_styled(struct sl_output *out, enum sl_style style, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  output_line(out, style, format, arguments);
  va_end(arguments);
}

static void table_failed(struct sl_table *table) {
  if (table->out->failed == 0)
    table->out->failed = -ENOMEM;
}

/* Whether a column is printed in this format at all. */
static bool in_format(const struct sl_table *table, int column) {
  const struct sl_column *c = &table->columns[column];
  if (table->out->format == SL_FORMAT_text)
    return !(c->flags & SL_COLUMN_DATA_ONLY);
  return !(c->flags & SL_COLUMN_TEXT_ONLY) && c->unit != SL_UNIT_bar;
}

struct sl_table *sl_table_begin(struct sl_output *out, const char *name, const struct sl_column *columns, int count) {
  struct sl_table *table = calloc(1, sizeof(*table));
  if (table) {
    table->out = out;
    table->count = count;
    table->name = strdup(name);
    table->columns = calloc(count > 0 ? count : 1, sizeof(*columns));
    table->widths = calloc(count > 0 ? count : 1, sizeof(int));
  }
  if (!table || !table->name || !table->columns || !table->widths) {
    out->failed = -ENOMEM;
    return sl_table_end(table);
  }
  if (count > 0)
    memcpy(table->columns, columns, count * sizeof(*columns));

  table->skipped = out->format == SL_FORMAT_csv && out->tables > 0;
  if (out->format == SL_FORMAT_json && out->document) {
    fputs(out->tables > 0 ? ",\n" : "\n", out->file);
    sl_json_text(out->file, name);
    fputs(": [", out->file);
  } else if (out->format == SL_FORMAT_json) {
    fputc('[', out->file);
  } else if (out->format == SL_FORMAT_csv && !table->skipped) {
    bool first = true;
    for (int i = 0; i < count; i++) {
      if (!in_format(table, i))
        continue;
      if (!first)
        fputc(',', out->file);
      sl_csv_text(out->file, columns[i].name);
      first = false;
    }
    fputc('\n', out->file);
  }
  out->tables++;
  return table;
}

void sl_table_stream(struct sl_table *table, int rows) {
  if (table)
    table->stream_rows = rows;
}

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

static bool on_right(enum sl_unit unit) {
  return unit != SL_UNIT_text && unit != SL_UNIT_bar && unit != SL_UNIT_any;
}

static void print_cell(struct sl_table *table, const struct cell *cell, int column, bool last) {
  const struct sl_terminal *terminal = &table->out->terminal;
  FILE *file = table->out->file;
  int padding = table->widths[column] - cell->width;
  bool styled = cell->style != SL_STYLE_plain;

  padding = padding < 0 ? 0 : padding;
  if (on_right(table->columns[column].unit))
    fprintf(file, "%*s", padding, "");
  fprintf(file, "%s%s%s", styled ? sl_style(terminal, cell->style) : "", cell->text,
          styled ? sl_style(terminal, SL_STYLE_plain) : "");
  if (!on_right(table->columns[column].unit) && !last)
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
      table_failed(table);
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
    if (table->widths[i] < 0 || !(table->columns[i].flags & SL_COLUMN_HIDE_EMPTY) || !on_right(table->columns[i].unit))
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

/*
 * Finds the widths from the rows that wait. On a terminal that is too narrow, texts lose their middle and then the
 * least columns go, which is said below the table. Where even that is not enough, the texts stay whole.
 */
static void fix_widths(struct sl_table *table) {
  int total = -2;
  for (int i = 0; i < table->count; i++) {
    bool empty = true;
    table->widths[i] = full_width(table, i);
    for (size_t c = i; c < table->cell_count; c += table->count)
      empty &= table->cells[c].size == 0;
    if (!in_format(table, i) || (empty && (table->columns[i].flags & SL_COLUMN_HIDE_EMPTY)))
      table->widths[i] = -1;
    else
      total += table->widths[i] + 2;
  }
  int room = table->out->terminal.width;
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
          table_failed(table);
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

static void print_waiting(struct sl_table *table) {
  const struct sl_output *out = table->out;
  if (table->stream_rows >= 0) { /* the first time */
    fix_widths(table);
    print_header(table);
  }
  for (size_t c = 0; c < table->cell_count; c++) {
    int column = (int)(c % table->count);
    if (table->columns[column].unit == SL_UNIT_text && table->widths[column] > 0 &&
        !(table->columns[column].flags & SL_COLUMN_SENTENCE))
      shorten(&table->cells[c], table->widths[column], out->terminal.utf8);
    if (column == table->count - 1)
      print_row(table, &table->cells[c - column]);
  }
  for (size_t c = 0; c < table->cell_count; c++)
    free(table->cells[c].text);
  table->cell_count = 0;
}

/* After the last cell of a row. */
static void finish_row(struct sl_table *table) {
  table->column = 0;
  table->rows++;
  table->value_printed = false;
  switch (table->out->format) {
  case SL_FORMAT_csv: fputc('\n', table->out->file); break;
  case SL_FORMAT_json: fputc('}', table->out->file); break;
  case SL_FORMAT_text:
    if (table->stream_rows < 0) {
      print_waiting(table);
    } else if (table->stream_rows > 0 && table->out->limit == SL_ALL_ROWS && !table->out->sort &&
               table->rows == table->stream_rows) {
      print_waiting(table);
      table->stream_rows = -1; /* widths are fixed: the other rows go out as they come */
    } else {
      sl_table_prune(table);
    }
    break;
  }
}

/* Before the value of a CSV or JSON cell. Returns false when the cell is not printed. */
static bool begin_value(struct sl_table *table) {
  FILE *file = table->out->file;
  if (!in_format(table, table->column))
    return false;
  if (table->out->format == SL_FORMAT_csv) {
    if (table->value_printed)
      fputc(',', file);
  } else {
    if (!table->value_printed)
      fputs(table->rows > 0 ? ",\n {" : "\n {", file);
    else
      fputs(", ", file);
    sl_json_text(file, table->columns[table->column].name);
    fputs(": ", file);
  }
  table->value_printed = true;
  return true;
}

static void end_value(struct sl_table *table) {
  if (++table->column == table->count)
    finish_row(table);
}

#define NOTHING (-INFINITY) /* instead of a number: of NULL, 0 and "" */
#define A_TEXT (-DBL_MAX)   /* of a text */

/* A text cell; text is owned by the table from here on. order: of a number the number. */
static void add_cell(struct sl_table *table, char *text, enum sl_style style, double order) {
  if (table->cell_count == table->cell_capacity) {
    size_t capacity = table->cell_capacity ? table->cell_capacity * 2 : 256;
    struct cell *cells = realloc(table->cells, capacity * sizeof(*cells));
    if (!cells) {
      free(text);
      table_failed(table);
      return;
    }
    table->cells = cells;
    table->cell_capacity = capacity;
  }
  if (!text) {
    table_failed(table);
    text = strdup("");
    if (!text)
      return;
  }
  table->cells[table->cell_count++] = (struct cell){.text = text,
                                                    .width = sl_text_width(text),
                                                    .style = style,
                                                    .order = order,
                                                    .size = order == NOTHING  ? 0
                                                            : order == A_TEXT ? 1
                                                                              : fabs(order)};
  end_value(table);
}

void sl_cell_null(struct sl_table *table) {
  if (!table || table->skipped)
    return;
  if (table->out->format == SL_FORMAT_text) {
    add_cell(table, strdup(on_right(table->columns[table->column].unit) ? "-" : ""), SL_STYLE_dim, NOTHING);
    return;
  }
  if (begin_value(table) && table->out->format == SL_FORMAT_json)
    fputs("null", table->out->file);
  end_value(table);
}

void sl_cell_int(struct sl_table *table, int64_t value) {
  char text[SL_UNIT_CHARS];
  if (!table || table->skipped)
    return;
  if (table->out->format != SL_FORMAT_text) {
    if (begin_value(table))
      fprintf(table->out->file, "%" PRId64, value);
    end_value(table);
    return;
  }
  /* Where a whole column may be nothing, nothing is the rule, and what is there should stand out. */
  if (value == 0 && (table->columns[table->column].flags & SL_COLUMN_HIDE_EMPTY)) {
    sl_cell_null(table);
    return;
  }
  switch (table->columns[table->column].unit) {
  case SL_UNIT_bytes: sl_format_bytes(text, value, table->out->exact_bytes); break;
  case SL_UNIT_change:
    text[0] = value > 0 ? '+' : '\0';
    sl_format_bytes(text + (value > 0), value, table->out->exact_bytes);
    break;
  case SL_UNIT_duration: sl_format_duration(text, value); break;
  case SL_UNIT_instant: sl_format_instant(text, value); break;
  default: snprintf(text, sizeof(text), "%" PRId64, value);
  }
  add_cell(table, strdup(text), SL_STYLE_plain, (double)value);
}

void sl_cell_double(struct sl_table *table, double value) {
  char text[SL_UNIT_CHARS];
  if (!table || table->skipped)
    return;
  if (table->out->format != SL_FORMAT_text) {
    if (begin_value(table)) {
      if (isfinite(value))
        fprintf(table->out->file, "%.15g", value);
      else if (table->out->format == SL_FORMAT_json)
        fputs("null", table->out->file); /* JSON has no infinity */
      else
        fputs(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf", table->out->file);
    }
    end_value(table);
    return;
  }
  if (table->columns[table->column].unit == SL_UNIT_share)
    sl_format_share(text, value);
  else
    snprintf(text, sizeof(text), table->columns[table->column].unit == SL_UNIT_rate ? "%.1f" : "%.6g", value);
  add_cell(table, strdup(text), SL_STYLE_plain, value);
}

void sl_cell_text(struct sl_table *table, const char *text) {
  if (!table || table->skipped)
    return;
  if (!text) {
    sl_cell_null(table);
    return;
  }
  if (table->out->format == SL_FORMAT_text) {
    add_cell(table, sl_clean_text(text), SL_STYLE_plain, *text ? A_TEXT : NOTHING);
    return;
  }
  if (begin_value(table)) {
    if (table->out->format == SL_FORMAT_csv)
      sl_csv_text(table->out->file, text);
    else
      sl_json_text(table->out->file, text);
  }
  end_value(table);
}

void sl_cell_bar(struct sl_table *table, double share, enum sl_style style) {
  if (!table || table->skipped)
    return;
  if (table->out->format == SL_FORMAT_text)
    add_cell(table, sl_bar_text(&table->out->terminal, share, BAR_WIDTH), style, share);
  else
    end_value(table);
}

/* The cells of the row that was put together in numbers, which are 0 again. */
static void pivot_flush(struct sl_table *table, int own, int64_t *numbers) {
  for (int i = own; i < table->count; i++) {
    sl_cell_int(table, numbers[i]);
    numbers[i] = 0;
  }
}

int64_t sl_table_pivot(struct sl_table *table, struct sl_statement *statement, int own, struct sl_error *error) {
  int64_t rows = 0, *numbers = table ? calloc((size_t)table->count + 1, sizeof *numbers) : NULL;
  char *key = NULL;
  int r = numbers ? 0 : sl_no_memory(error);
  while (r >= 0 && (r = sl_statement_step(statement, error)) > 0) {
    if (!key || strcmp(key, sl_column_text(statement, 0)) != 0) {
      if (key)
        pivot_flush(table, own, numbers);
      free(key);
      key = strdup(sl_column_text(statement, 0));
      sl_cell_columns(table, statement, 1, own);
      rows++;
    }
    for (int i = own; i < table->count; i++)
      if (strcmp(table->columns[i].name, sl_column_text(statement, own + 1)) == 0)
        numbers[i] += sl_column_int(statement, own + 2);
    if (!key)
      r = sl_no_memory(error);
  }
  if (key)
    pivot_flush(table, own, numbers);
  free(key);
  free(numbers);
  return r < 0 ? r : rows;
}

struct sl_table *sl_table_end(struct sl_table *table) {
  if (!table)
    return NULL;
  if (table->name && table->columns && table->widths && !table->skipped) {
    if (table->out->format == SL_FORMAT_json)
      fputs(table->out->document ? "\n]" : "\n]\n", table->out->file);
    else if (table->out->format == SL_FORMAT_text && table->stream_rows >= 0 && table->count > 0) {
      sl_table_choose(table);
      print_waiting(table);
      sl_table_say_left_out(table);
    }
    if (table->left_out[0])
      sl_output_styled(table->out, SL_STYLE_dim, "No room for: %s (--csv has all)", table->left_out);
  }
  for (size_t c = 0; c < table->cell_count; c++)
    free(table->cells[c].text);
  free(table->cells);
  free(table->widths);
  free(table->columns);
  free(table->name);
  free(table);
  return NULL;
}

/* Prints tables as text, CSV or JSON, from one declaration of their columns. */
#include "output/table_cells.h"
#include "output/text.h"
#include "output/units.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAR_WIDTH 24

static void begin_json(const struct sl_table *table) {
  const struct sl_output *out = table->out;
  if (out->document) {
    fputs(out->tables > 0 ? ",\n" : "\n", out->file);
    sl_json_text(out->file, table->name);
    fputs(": ", out->file);
  }
  fputc('[', out->file);
}

static void begin_csv(const struct sl_table *table) {
  const struct sl_output *out = table->out;
  bool first = true;
  if (out->tables > 0)
    fprintf(out->file, "\n# %s\n", table->name);
  for (int i = 0; i < table->count; i++) {
    if (!sl_table_shows(table, i))
      continue;
    if (!first)
      fputc(',', out->file);
    sl_csv_text(out->file, table->columns[i].name);
    first = false;
  }
  fputc('\n', out->file);
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

  if (out->only && strcmp(out->only, name) != 0) {
    const size_t length = strlen(out->others);
    snprintf(out->others + length, sizeof(out->others) - length, "%s%s", length ? ", " : "", name);
    table->skipped = true;
    return table;
  }
  if (out->format == SL_FORMAT_json)
    begin_json(table);
  else if (out->format == SL_FORMAT_csv)
    begin_csv(table);
  out->tables++;
  return table;
}

void sl_table_stream(struct sl_table *table, int rows) {
  if (table)
    table->stream_rows = rows;
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
      sl_table_print(table, false);
    } else if (table->stream_rows > 0 && table->out->limit == SL_ALL_ROWS && !table->out->sort &&
               table->rows == table->stream_rows) {
      sl_table_print(table, false);
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
  if (!sl_table_shows(table, table->column))
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
      sl_table_failed(table);
      return;
    }
    table->cells = cells;
    table->cell_capacity = capacity;
  }
  if (!text) {
    sl_table_failed(table);
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
    add_cell(table, strdup(sl_unit_is_on_right(table->columns[table->column].unit) ? "-" : ""), SL_STYLE_dim, NOTHING);
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

struct sl_table *sl_table_end(struct sl_table *table) {
  if (!table)
    return NULL;
  if (table->name && table->columns && table->widths && !table->skipped) {
    if (table->out->format == SL_FORMAT_json)
      fputs(table->out->document ? "\n]" : "\n]\n", table->out->file);
    else if (table->out->format == SL_FORMAT_text && table->stream_rows >= 0 && table->count > 0) {
      sl_table_choose(table);
      sl_table_print(table, true);
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

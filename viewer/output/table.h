/*
 * Results as tables. A command declares its columns once; text, CSV and JSON come from the same declaration.
 *
 *   static const struct sl_column columns[] = {{"step", "Step", SL_UNIT_number, 0}, {"bytes", "Peak", SL_UNIT_bytes,
 * 0}}; struct sl_table *table = sl_table_begin(out, "steps", columns, 2); sl_cell_int(table, 3); sl_cell_int(table,
 * 2050293760); table = sl_table_end(table);
 *
 * Cells come row by row, from left to right. What runs out of memory or can't be written makes sl_output_close fail.
 */
#ifndef SHARDLEDGER_TABLE_H
#define SHARDLEDGER_TABLE_H

#include "output/terminal.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum sl_format { SL_FORMAT_text, SL_FORMAT_csv, SL_FORMAT_json };

/* How a column prints as text. CSV and JSON always have the exact number. */
enum sl_unit {
  SL_UNIT_text,
  SL_UNIT_number,
  SL_UNIT_bytes,
  SL_UNIT_change, /* bytes with their sign */
  SL_UNIT_duration,
  SL_UNIT_instant,
  SL_UNIT_share, /* 0 … 1, as per cent */
  SL_UNIT_rate,  /* with one decimal */
  SL_UNIT_bar,   /* 0 … 1, drawn; in text only */
  SL_UNIT_any,   /* as the value's own type */
};

enum sl_column_flags {
  SL_COLUMN_HIDE_EMPTY = 1, /* text leaves the column out when every cell is NULL, 0 or empty */
  SL_COLUMN_TEXT_ONLY = 2,  /* not in CSV and JSON */
  SL_COLUMN_DATA_ONLY = 4,  /* not in text */
  SL_COLUMN_SENTENCE = 8,   /* on a narrow terminal the text goes on in the next line instead of losing its middle */
  SL_COLUMN_WRAP = 16,      /* where there is no room it goes into a second table below, instead of away */
  SL_COLUMN_COMMON = 32,    /* where there is no room and all rows have the same, a line above the table says it once */
};

#define SL_ALL_ROWS INT64_MAX
#define SL_WHOLE (-1) /* instead of a number of rows: all, since the question itself says how many */

struct sl_column {
  const char *name;   /* in CSV and JSON; stays the same between versions */
  const char *header; /* in text */
  enum sl_unit unit;
  unsigned flags;
};

struct sl_output {
  FILE *file;
  enum sl_format format;
  bool exact_bytes; /* text: bytes as plain numbers */
  struct sl_terminal terminal;
  int64_t limit;    /* text: rows of a table that are shown; 0: what a screen has room for */
  const char *sort; /* text: the column, by name or heading, by which tables are sorted; NULL: as they come */
  bool sorted;      /* a table had it */
  int lines;        /* text: printed so far */
  const char *only; /* CSV and JSON: the table that is printed, by its name; NULL: all */
  char others[512]; /* the names of the tables that it is not */
  bool document;    /* several named tables: one JSON object */
  int tables;       /* printed so far */
  int failed;       /* the first negative errno, or 0 */
};

struct sl_table;

/* Results go to stdout. */
void sl_output_open(struct sl_output *out, enum sl_format format, bool exact_bytes);

/*
 * From here to sl_output_close, tables are parts of one document: JSON makes an object with a key a table. CSV prints
 * the first table and, after an empty line and its name ("# deaths"), each other one.
 */
void sl_output_document(struct sl_output *out);

/* Ends the output; returns 0 or the first error, a negative errno, after saying it on stderr. */
int sl_output_close(struct sl_output *out);

/* A line of prose between tables; text output only. */
void sl_output_line(struct sl_output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same in a style. */
void sl_output_styled(struct sl_output *out, enum sl_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* columns and name are copied. Returns NULL when memory runs out, which every other function takes quietly. */
struct sl_table *sl_table_begin(struct sl_output *out, const char *name, const struct sl_column *columns, int count);

/*
 * Prints what text output had to wait for and frees the table; returns NULL. Text waits for all rows, to find the
 * widths, or for the first `rows` of them after sl_table_stream.
 */
struct sl_table *sl_table_end(struct sl_table *table);
void sl_table_stream(struct sl_table *table, int rows);

/*
 * Text shows a screen of a table: the first rows, as many as there is room for below what was printed before, and a
 * line that says how many there are and how to get them. With this it shows `most` rows at most (0: as before), and of
 * more those whose cells in the column `by` are the largest (NULL: the first), in the order in which they came. by is
 * the caller's. --limit and --sort of the command line come before both.
 */
void sl_table_keep(struct sl_table *table, int most, const char *by);

/* The line says what the rows that are left out have together in this column of bytes. It is the caller's. */
void sl_table_add_up(struct sl_table *table, const char *column);

void sl_cell_null(struct sl_table *table);
void sl_cell_int(struct sl_table *table, int64_t value);
void sl_cell_double(struct sl_table *table, double value);
void sl_cell_text(struct sl_table *table, const char *text); /* copied; NULL is a null */
void sl_cell_bar(struct sl_table *table, double share, enum sl_style style);

/* The value in a column of a statement's current row, and those of the table's columns from first to last. */
void sl_cell_column(struct sl_table *table, struct sl_statement *statement, int column);
void sl_cell_columns(struct sl_table *table, struct sl_statement *statement, int first, int last);

/* Every row of the statement, whose columns are those of the table. Returns the number of rows or a negative errno. */
int64_t sl_table_rows(struct sl_table *table, struct sl_statement *statement, struct sl_error *error);

/*
 * Rows of a statement that say one number each, laid out side by side: consecutive rows whose first column is the same
 * make a row of the table. Its first `own` cells are the columns that follow in the statement; then come the name of a
 * number, and the number, which goes under the column of that name. What has none is 0. Returns as sl_table_rows does.
 */
int64_t sl_table_pivot(struct sl_table *table, struct sl_statement *statement, int own, struct sl_error *error);

/* A table that is the answer to a question. */
struct sl_listing {
  const char *name; /* as of sl_table_begin */
  const struct sl_column *columns;
  int count;
  const char *sql;
  const char *heading; /* text: above it; NULL: none */
  bool only_with_rows; /* text: without rows there is no table, and with them a blank line above it */
  int most;            /* as of sl_table_keep */
  const char *by;      /* the same */
};
#define SL_COLUMNS(list) (list), (int)(sizeof(list) / sizeof((list)[0]))

/* Prints it. Returns the number of rows or a negative errno. */
int64_t sl_print_listing(struct sl_db *db, struct sl_output *out, const struct sl_listing *listing,
                         const struct sl_parameter *parameters, struct sl_error *error);

#endif

/* Prints one line for each group of ranks that is different. */
#include "commands/rank_lines.h"

#include "commands/summary.h"
#include "output/text.h"
#include "output/units.h"
#include "storage/memory_file.h"
#include "viewer_sql.h"

#include <stdlib.h>
#include <string.h>

#define HEADING_GROUPS 6
#define LIST_WIDTH 40 /* columns that a list of ranks may take; a longer one is cut at a comma */

/* The columns of ranks_differences. */
enum {
  GROUP,
  LIST,
  RANKS,
  REPRESENTATIVE,
  HOST,
  IS_ALL_OF,
  KIND,
  BYTES,
  PER_STEP,
  WHAT,
  MODULE,
  PHASE,
  OWNER_BYTES,
  SINCE,
  LAST,
  STEPS,
  PERIOD,
  PERIOD_PLACE,
  PLACE,
  OTHER_LIST, /* NULL: the largest group */
  OTHER_RANKS,
  OTHER_IS_REST_OF,
  IS_REST_OF,
  NEAR, /* ranks of the groups that are told next to this one, and how many these are */
  NEAR_RANKS,
};

static bool is_kind(struct sl_statement *row, const char *kind) {
  return strcmp(sl_column_text(row, KIND), kind) == 0;
}

/* "64-71", "0,2,4,… (125 ranks)". */
static void write_list(FILE *file, const char *list, long long ranks) {
  size_t length = strlen(list);
  if (length > LIST_WIDTH) {
    for (length = LIST_WIDTH; length > 0 && list[length] != ','; length--)
      ;
    fprintf(file, "%.*s,… (%lld ranks)", (int)length, list, ranks);
  } else {
    fputs(list, file);
  }
}

/* Of "host gpu-node-08, mesh pp=3" what names it. */
static const char *without_kind(const char *name) {
  return strncmp(name, "host ", 5) == 0 || strncmp(name, "mesh ", 5) == 0 ? name + 5 : name;
}

/* "64-71 = all of gpu-node-08", "192-199,208-255 = pp=3 but 200-207", "137 (gpu-node-17)". */
static void write_ranks(FILE *file, struct sl_statement *row) {
  const char *all_of = sl_column_text(row, IS_ALL_OF), *rest_of = sl_column_text(row, IS_REST_OF),
             *host = sl_column_text(row, HOST);
  const long long ranks = sl_column_int(row, RANKS);
  write_list(file, sl_column_text(row, LIST), ranks);
  if (ranks > 1 && *all_of) {
    fprintf(file, " = all of %s", without_kind(all_of));
  } else if (ranks > 1 && *rest_of) {
    fprintf(file, " = %s but ", without_kind(rest_of));
    write_list(file, sl_column_text(row, NEAR), sl_column_int(row, NEAR_RANKS));
  } else if (*host) {
    fprintf(file, " (%s)", host);
  }
}

static void write_bytes(FILE *file, int64_t bytes, bool exact) {
  char text[SL_UNIT_CHARS];
  fprintf(file, "%s%s", bytes > 0 ? "+" : "", sl_format_bytes(text, bytes, exact));
}

/* "activation, blocks.2 forward"; of what makes less than the whole, how much it is. */
static void write_owner(FILE *file, struct sl_statement *row, bool exact) {
  char text[SL_UNIT_CHARS];
  const int64_t own = llabs(sl_column_int(row, OWNER_BYTES)), all = llabs(sl_column_int(row, BYTES));
  const char *module = sl_column_text(row, MODULE);
  if (sl_column_is_null(row, WHAT))
    return;
  if (!is_kind(row, "growth") && own < all - all / 10)
    fprintf(file, ", most of it (%s)", sl_format_bytes(text, own, exact));
  fprintf(file, " %s", sl_column_text(row, WHAT));
  if (*module)
    fprintf(file, ", %s", module);
  if (!sl_column_is_null(row, PHASE)) {
    fputs(*module ? " " : ", ", file);
    for (const char *c = sl_column_text(row, PHASE); *c; c++)
      fputc(*c == '_' ? ' ' : *c, file);
  }
}

static void write_when(FILE *file, struct sl_statement *row) {
  const long long since = sl_column_int(row, SINCE), last = sl_column_int(row, LAST), steps = sl_column_int(row, STEPS);
  const bool is_outside = is_kind(row, "outside");
  if (is_outside || sl_column_is_null(row, SINCE))
    fprintf(file, ", %s%s", steps > 1 ? "most " : "", sl_column_text(row, PERIOD_PLACE));
  if (is_kind(row, "end"))
    fputs(", kept at the end", file);
  if (is_kind(row, "category"))
    fputs(" instead of other memory", file);
  if (sl_column_is_null(row, SINCE) || (is_outside && steps == 1))
    return;
  if (sl_column_is_null(row, LAST))
    fprintf(file, ", since step %lld", since);
  else if (since == last)
    fprintf(file, ", in step %lld only", since);
  else
    fprintf(file, ", in %lld of the steps %lld to %lld", steps, since, last);
}

/* "next to the rest of pp=3: ", unless that is the largest group. */
static void write_other(FILE *file, struct sl_statement *row) {
  if (sl_column_is_null(row, OTHER_LIST))
    return;
  if (sl_column_is_null(row, OTHER_IS_REST_OF)) {
    fputs("next to ", file);
    write_list(file, sl_column_text(row, OTHER_LIST), sl_column_int(row, OTHER_RANKS));
  } else {
    fprintf(file, "next to the rest of %s", without_kind(sl_column_text(row, OTHER_IS_REST_OF)));
  }
  fputs(": ", file);
}

static char *line_of(struct sl_statement *row, bool exact, char **ranks) {
  struct sl_memory_file memory;
  FILE *file = sl_memory_file_open(&memory);
  if (file && sl_column_int(row, PLACE) == 0)
    write_ranks(file, row);
  char *first = sl_memory_file_close(&memory, NULL);
  file = first ? sl_memory_file_open(&memory) : NULL;
  if (!file) {
    free(first);
    return NULL;
  }
  if (sl_column_int(row, PLACE) == 0)
    write_other(file, row);
  if (is_kind(row, "growth")) {
    write_bytes(file, sl_column_int(row, PER_STEP), exact);
    fputs("/step", file);
  } else {
    write_bytes(file, sl_column_int(row, BYTES), exact);
  }
  write_owner(file, row, exact);
  write_when(file, row);
  char *line = sl_memory_file_close(&memory, NULL);
  if (line)
    *ranks = first;
  else
    free(first);
  return line;
}

struct lines {
  struct {
    char *ranks, *text;
  } items[64];
  int count, width;
};

/* Side by side, as wide as the widest name of these. */
static void flush_lines(struct sl_output *out, struct lines *lines) {
  for (int i = 0; i < lines->count; i++) {
    char *clean = sl_clean_text(lines->items[i].ranks);
    const int width = clean ? sl_text_width(clean) : 0;
    sl_output_line(out, "     %s%*s  %s", lines->items[i].ranks, lines->width - width, "", lines->items[i].text);
    free(clean);
    free(lines->items[i].ranks);
    free(lines->items[i].text);
  }
  *lines = (struct lines){.count = 0};
}

static int print_differences(struct sl_db *db, struct sl_output *out, int most, const struct sl_ranks *ranks,
                             struct sl_error *error) {
  enum { ROOM = sizeof((struct lines *)0)->items / sizeof((struct lines *)0)->items[0] };
  struct sl_statement *row = NULL;
  struct lines lines = {.count = 0};
  int64_t left_out = 0;
  int r = sl_db_ask(db, sl_sql_ranks_differences, SL_WITH(SL_NUMBER(":first", most > 0), SL_RANKS(ranks)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    if (most > 0 && sl_column_int(row, GROUP) > most) {
      left_out++;
      continue;
    }
    if (lines.count == ROOM)
      flush_lines(out, &lines);
    char *text = line_of(row, out->exact_bytes, &lines.items[lines.count].ranks);
    if (!text) {
      r = sl_no_memory(error);
      break;
    }
    lines.items[lines.count].text = text;
    char *clean = sl_clean_text(lines.items[lines.count++].ranks);
    const int width = clean ? sl_text_width(clean) : 0;
    lines.width = width > lines.width ? width : lines.width;
    free(clean);
  }
  row = sl_statement_close(row);
  if (r == 0 && ranks->text && !lines.count)
    sl_output_line(out, "     %s: alike", ranks->text);
  flush_lines(out, &lines);
  if (left_out)
    sl_output_line(out, "     and %lld more group%s: 'shardledger ranks' lists all", (long long)left_out,
                   left_out == 1 ? "" : "s");
  return r;
}

/* most: groups, each with its first fact; 0: all with all facts. least: the fewest ranks of which it says that they are
 * all alike. */
static int print_lines(struct sl_db *db, struct sl_output *out, int most, int64_t least, const struct sl_ranks *asked,
                       struct sl_error *error) {
  struct sl_statement *row = NULL;
  char peak[SL_UNIT_CHARS];
  int r = sl_db_ask_first(db, sl_sql_ranks_count, NULL, &row, error);
  const int64_t ranks = r > 0 ? sl_column_int(row, 0) : 0, grouped = r > 0 ? sl_column_int(row, 1) : 0;
  const int64_t groups = r > 0 ? sl_column_int(row, 2) : 0, alike = r > 0 ? sl_column_int(row, 3) : 0;
  if (ranks > 1 && groups > 0 && (groups > 1 || ranks >= least)) {
    sl_format_bytes(peak, sl_column_int(row, 5), out->exact_bytes);
    if (groups == 1)
      sl_output_line(out, "%lld ranks, all alike (%s)", (long long)grouped, peak);
    else if (alike == 1)
      sl_output_line(out, "%lld ranks, all different; next to rank %s (%s):", (long long)grouped,
                     sl_column_text(row, 4), peak);
    else
      sl_output_line(out, "%lld ranks in %lld groups; %lld alike (%s)", (long long)grouped, (long long)groups,
                     (long long)alike, peak);
    r = groups > 1 ? print_differences(db, out, most, asked, error) : 0;
    if (r >= 0 && grouped < ranks)
      sl_output_line(out, "     no allocations were recorded on: %s", sl_column_text(row, 6));
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

int sl_print_rank_lines(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, struct sl_error *error) {
  return out->format == SL_FORMAT_text ? print_lines(db, out, 0, 2, ranks, error) : 0;
}

int sl_print_rank_heading(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  const struct sl_ranks all = {0};
  return out->format == SL_FORMAT_text ? print_lines(db, out, HEADING_GROUPS, SL_RANKS_SIDE_BY_SIDE + 1, &all, error)
                                       : 0;
}

int sl_print_rank_difference(struct sl_db *db, struct sl_output *out, int64_t rank, struct sl_error *error) {
  struct sl_statement *row = NULL;
  char *ranks = NULL, *text = NULL;
  int r = 0;
  if (out->format != SL_FORMAT_text)
    return 0;
  r = sl_db_ask_first(db, sl_sql_ranks_difference_of, SL_WITH(SL_NUMBER(":rank", rank)), &row, error);
  if (r > 0 && !(text = line_of(row, out->exact_bytes, &ranks)))
    r = sl_no_memory(error);
  if (r > 0 && sl_column_is_null(row, OTHER_LIST))
    sl_output_line(out, "Next to most ranks: %s", text);
  else if (r > 0)
    sl_output_line(out, "N%s", text + 1); /* "Next to …: " */
  free(ranks);
  free(text);
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

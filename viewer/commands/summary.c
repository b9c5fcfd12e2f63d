#include "commands/summary.h"
#include "output/units.h"
#include "storage/grow.h"
#include "storage/rules/categories.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_OWNERS 6

struct rank_peak {
  int64_t rank, step, rows_step;
  int64_t allocated_bytes, reserved_bytes, device_bytes, device_total_bytes; /* reserved_bytes: -1 where not known */
  char *where;
};

struct rank_peaks {
  struct rank_peak *ranks;
  int count;
  int worst; /* index of the highest */
};

enum sl_style sl_category_style(const char *category) {
  static const enum sl_style styles[] = {
#define CATEGORY(name, fsdp_word, tracker_word, layer, letter, style, colour, meaning) SL_STYLE_##style,
#include "storage/rules/categories.def"
#undef CATEGORY
  };
  int number = sl_category_find(category);
  return number < 0 ? SL_STYLE_plain : styles[number];
}

int sl_print_coverage(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS], share[SL_UNIT_CHARS];
  int64_t unattributed = 0, allocated = 0, lost = 0, gaps = 0, ranks = 0, world_size = 0, reduced = 0;
  int r = sl_db_ask_first(db, sl_sql_summary_coverage, NULL, &statement, error);
  if (r > 0) {
    lost = sl_column_int(statement, 0);
    gaps = sl_column_int(statement, 1);
    unattributed = sl_column_int(statement, 2);
    allocated = sl_column_int(statement, 3);
    ranks = sl_column_int(statement, 4);
    world_size = sl_column_int(statement, 5);
    reduced = sl_column_int(statement, 6);
  }
  statement = sl_statement_close(statement);
  if (r < 0)
    return r;

  char line[280], missing[200] = "", some[64] = "";
  if (reduced && reduced < ranks)
    snprintf(some, sizeof(some), " on %lld of %lld ranks", (long long)reduced, (long long)ranks);
  size_t length = 0;
  if (reduced)
    length = (size_t)snprintf(missing, sizeof(missing), "reduced: allocations read from PyTorch's history%s; ", some);
  if (ranks < world_size)
    snprintf(missing + length, sizeof(missing) - length, "%lld of %lld ranks; ", (long long)ranks,
             (long long)world_size);
  snprintf(line, sizeof(line), "%s%lld event%s lost, %lld gap%s; %s (%s) unattributed at the peak", missing,
           (long long)lost, lost == 1 ? "" : "s", (long long)gaps, gaps == 1 ? "" : "s",
           sl_format_bytes(bytes, unattributed, out->exact_bytes),
           sl_format_share(share, sl_share(unattributed, allocated)));
  if (out->format == SL_FORMAT_text)
    sl_output_styled(out, *missing || lost || gaps || unattributed ? SL_STYLE_yellow : SL_STYLE_dim, "%s", line);
  else if (*missing || lost || gaps || unattributed)
    sl_complain("%s", line);
  return 0;
}

int sl_print_repeated(struct sl_db *db, struct sl_output *out, int64_t step, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char line[160];
  if (step < 0)
    return 0;
  int r = sl_db_ask_first(db, sl_sql_summary_repeated, SL_WITH(SL_NUMBER(":step", step)), &statement, error);
  if (r > 0 && sl_column_int(statement, 0) > 0) {
    snprintf(line, sizeof(line), "Step %lld did to the byte what step %.60s did, whose rows stand for it",
             (long long)step, sl_column_text(statement, 1));
    if (out->format == SL_FORMAT_text)
      sl_output_line(out, "%s", line);
    else
      sl_complain("%s", line);
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

static void free_peaks(struct rank_peaks *peaks) {
  for (int i = 0; i < peaks->count; i++)
    free(peaks->ranks[i].where);
  free(peaks->ranks);
  memset(peaks, 0, sizeof(*peaks));
}

static int read_peaks(struct sl_db *db, struct rank_peaks *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask(db, sl_sql_summary_peaks, NULL, &statement, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(statement, error)) > 0) {
    struct rank_peak *more = sl_list_grow(out->ranks, (size_t)out->count, sizeof(*more));
    if (!more) {
      r = sl_no_memory(error);
      break;
    }
    out->ranks = more;
    more += out->count++;
    more->rank = sl_column_int(statement, 0);
    more->step = sl_column_int(statement, 1);
    more->rows_step = sl_column_int(statement, 2);
    more->allocated_bytes = sl_column_int(statement, 3);
    more->reserved_bytes = sl_column_is_null(statement, 4) ? -1 : sl_column_int(statement, 4);
    more->device_bytes = sl_column_int(statement, 5);
    more->device_total_bytes = sl_column_int(statement, 6);
    more->where = strdup(sl_column_text(statement, 7));
    if (more->allocated_bytes > out->ranks[out->worst].allocated_bytes)
      out->worst = out->count - 1;
    if (!more->where) {
      r = sl_no_memory(error);
      break;
    }
  }
  statement = sl_statement_close(statement);
  return r;
}

static void print_headline(struct sl_output *out, const struct rank_peaks *peaks) {
  const struct rank_peak *worst = &peaks->ranks[peaks->worst];
  char allocated[SL_UNIT_CHARS], reserved[SL_UNIT_CHARS], device[SL_UNIT_CHARS], total[SL_UNIT_CHARS],
      share[SL_UNIT_CHARS];

  sl_output_styled(out, SL_STYLE_bold, "Peak %s allocated: rank %lld, step %lld, %s",
                   sl_format_bytes(allocated, worst->allocated_bytes, out->exact_bytes), (long long)worst->rank,
                   (long long)worst->step, worst->where);
  if (worst->reserved_bytes < 0)
    (void)snprintf(reserved, sizeof(reserved), "%s", "an unknown amount");
  else
    sl_format_bytes(reserved, worst->reserved_bytes, out->exact_bytes);
  sl_format_bytes(device, worst->device_bytes, out->exact_bytes);
  sl_format_bytes(total, worst->device_total_bytes, out->exact_bytes);
  sl_format_share(share, sl_share(worst->device_bytes, worst->device_total_bytes));
  if (worst->device_bytes > 0 && worst->device_total_bytes > 0)
    sl_output_line(out, "     %s reserved by PyTorch, %s of the device's %s in use (%s)", reserved, device, total,
                   share);
  else
    sl_output_line(out, "     %s reserved by PyTorch; the device was not sampled", reserved);
}

static void print_ranks(struct sl_output *out, const struct rank_peaks *peaks) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"step", "Step", SL_UNIT_number, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"device_bytes", "Device", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"where", "Where", SL_UNIT_text, 0},
  };
  char lowest[SL_UNIT_CHARS], spread[SL_UNIT_CHARS];
  int least = 0;
  for (int i = 1; i < peaks->count; i++)
    if (peaks->ranks[i].allocated_bytes < peaks->ranks[least].allocated_bytes)
      least = i;
  int64_t difference = peaks->ranks[peaks->worst].allocated_bytes - peaks->ranks[least].allocated_bytes;
  if (difference == 0)
    sl_output_line(out, "     The same peak on all %d ranks", peaks->count);
  else
    sl_output_line(out, "     Lowest peak of %d ranks: %s on rank %lld, %s less", peaks->count,
                   sl_format_bytes(lowest, peaks->ranks[least].allocated_bytes, out->exact_bytes),
                   (long long)peaks->ranks[least].rank, sl_format_bytes(spread, difference, out->exact_bytes));
  if (peaks->count > SL_RANKS_SIDE_BY_SIDE)
    return;
  sl_output_line(out, "%s", "");
  struct sl_table *table = sl_table_begin(out, "ranks", columns, sizeof(columns) / sizeof(columns[0]));
  for (int i = 0; i < peaks->count; i++) {
    const struct rank_peak *peak = &peaks->ranks[i];
    sl_cell_int(table, peak->rank);
    sl_cell_int(table, peak->step);
    sl_cell_int(table, peak->allocated_bytes);
    if (peak->reserved_bytes < 0)
      sl_cell_null(table);
    else
      sl_cell_int(table, peak->reserved_bytes);
    sl_cell_int(table, peak->device_bytes);
    sl_cell_text(table, peak->where);
  }
  table = sl_table_end(table);
}

static int print_categories(struct sl_db *db, struct sl_output *out, const struct rank_peaks *peaks,
                            struct sl_error *error) {
  const struct rank_peak *worst = &peaks->ranks[peaks->worst];
  bool side_by_side = peaks->count <= SL_RANKS_SIDE_BY_SIDE;
  struct sl_column columns[3 + SL_RANKS_SIDE_BY_SIDE + 1] = {{"category", "Alive at the peak", SL_UNIT_text, 0}};
  char headers[SL_RANKS_SIDE_BY_SIDE + 1][32];
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int count = 1;
  int r = sl_db_ask(db, sl_sql_summary_categories, SL_WITH(SL_NUMBER(":worst", worst->rank)), &statement, error);
  if (r < 0)
    return r;

  /* Bytes of one rank, share and bar belong together; with several ranks the bar is of the highest. */
  for (int i = 0; i < (side_by_side ? peaks->count : 1); i++) {
    snprintf(headers[i], sizeof(headers[i]), "Rank %lld",
             (long long)(side_by_side ? peaks->ranks[i].rank : worst->rank));
    columns[count++] = (struct sl_column){"bytes", peaks->count == 1 ? "Bytes" : headers[i], SL_UNIT_bytes, 0};
  }
  if (!side_by_side) {
    columns[count++] = (struct sl_column){"lowest_bytes", "Lowest", SL_UNIT_bytes, 0};
    columns[count++] = (struct sl_column){"highest_bytes", "Highest", SL_UNIT_bytes, 0};
  }
  columns[count++] = (struct sl_column){"share", "Share", SL_UNIT_share, 0};
  columns[count++] = (struct sl_column){"bar", "", SL_UNIT_bar, 0};

  table = sl_table_begin(out, "categories", columns, count);
  double largest = 0;
  while ((r = sl_statement_step(statement, error)) > 0) {
    double share = sl_share(sl_column_int(statement, 1), worst->allocated_bytes);
    largest = share > largest ? share : largest;
    sl_cell_text(table, sl_column_text(statement, 0));
    sl_cell_columns(table, statement, side_by_side ? 4 : 1, side_by_side ? 3 + peaks->count : 3);
    sl_cell_double(table, share);
    /* Against the largest, so that the shape shows even when no category dominates. */
    sl_cell_bar(table, largest > 0 ? share / largest : 0, sl_category_style(sl_column_text(statement, 0)));
  }
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  return r;
}

static int print_owners(struct sl_db *db, struct sl_output *out, const struct rank_peaks *peaks,
                        struct sl_error *error) {
  const struct rank_peak *worst = &peaks->ranks[peaks->worst];
  char header[48] = "Largest owners";
  if (peaks->count > 1)
    snprintf(header, sizeof(header), "Largest on rank %lld", (long long)worst->rank);
  const struct sl_column columns[] = {
      {"module", header, SL_UNIT_text, 0},
      {"category", "Category", SL_UNIT_text, 0},
      {"phase", "Allocated in", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"allocations", "Allocations", SL_UNIT_number, 0},
  };
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  int r = sl_db_ask_first(db, sl_sql_summary_owners,
                          SL_WITH(SL_NUMBER(":rank", worst->rank), SL_NUMBER(":step", worst->rows_step),
                                  SL_NUMBER(":limit", LARGEST_OWNERS)),
                          &statement, error);
  if (r > 0) {
    sl_output_line(out, "%s", "");
    table = sl_table_begin(out, "owners", columns, sizeof(columns) / sizeof(columns[0]));
    for (; r > 0; r = sl_statement_step(statement, error))
      sl_cell_columns(table, statement, 0, 4);
    table = sl_table_end(table);
  }
  statement = sl_statement_close(statement);
  return r;
}

int sl_print_summary(struct sl_db *db, struct sl_output *out, bool in_info, struct sl_error *error) {
  struct rank_peaks peaks = {0};
  int r = 0;

  if (out->format != SL_FORMAT_text)
    return 0;
  r = read_peaks(db, &peaks, error);
  if (r < 0)
    goto finish;
  if (peaks.count == 0) {
    int64_t steps = 0;
    r = sl_db_int(db, sl_sql_summary_has_steps, &steps, error);
    sl_output_line(out, "No %s recorded, so there is no peak to show; %s says %s.",
                   steps ? "allocations were" : "step was", in_info ? "what follows" : "'shardledger info'",
                   steps ? "why" : "what there is");
    goto finish;
  }
  sl_output_line(out, "%s", "");
  print_headline(out, &peaks);
  if (peaks.count > 1)
    print_ranks(out, &peaks);
  sl_output_line(out, "%s", "");
  r = print_categories(db, out, &peaks, error);
  if (r == 0)
    r = print_owners(db, out, &peaks, error);

finish:
  free_peaks(&peaks);
  return r;
}

/* Prints what every report begins with: losses, the peak and its parts. */
#include "commands/summary.h"
#include "commands/rank_lines.h"
#include "output/units.h"
#include "storage/grow.h"
#include "storage/rules/categories.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_OWNERS 6

struct rank_peak {
  int64_t rank, step, rows_of;                                               /* step -1: outside of steps */
  int64_t allocated_bytes, reserved_bytes, device_bytes, device_total_bytes; /* reserved_bytes: -1 where not known */
  char *where, *place;                                                       /* the place: the period in words */
  int64_t highest_step, highest_step_bytes;
  char *highest_where; /* "" where no step has a peak */
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
  char bytes[SL_UNIT_CHARS], share[SL_UNIT_CHARS], absent[192] = "", run[64] = "", rehearsed[192] = "";
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
    snprintf(absent, sizeof absent, "%s", sl_column_text(statement, 7));
    snprintf(run, sizeof run, "%s", sl_column_text(statement, 8));
    snprintf(rehearsed, sizeof rehearsed, "%s", sl_column_text(statement, 9));
  }
  statement = sl_statement_close(statement);
  if (r < 0)
    return r;

  char line[680], missing[360] = "", some[64] = "";
  if (reduced && reduced < ranks)
    snprintf(some, sizeof(some), " on %lld of %lld ranks", (long long)reduced, (long long)ranks);
  size_t length = 0;
  if (reduced)
    length = (size_t)snprintf(missing, sizeof(missing), "reduced: allocations read from PyTorch's history%s; ", some);
  if (*absent)
    snprintf(missing + length, sizeof(missing) - length, "%lld of %lld ranks, missing: %s; ", (long long)ranks,
             (long long)world_size, absent);
  snprintf(line, sizeof(line), "%s%s%s%lld event%s lost, %lld gap%s; %s (%s) unattributed at the peak", run, rehearsed,
           missing, (long long)lost, lost == 1 ? "" : "s", (long long)gaps, gaps == 1 ? "" : "s",
           sl_format_bytes(bytes, unattributed, out->exact_bytes),
           sl_format_share(share, sl_share(unattributed, allocated)));
  if (out->format == SL_FORMAT_text)
    sl_output_styled(out, *missing || lost || gaps || unattributed ? SL_STYLE_yellow : SL_STYLE_dim, "%s", line);
  else if (*rehearsed || *missing || lost || gaps || unattributed)
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
    free(peaks->ranks[i].where), free(peaks->ranks[i].place), free(peaks->ranks[i].highest_where);
  free(peaks->ranks);
  memset(peaks, 0, sizeof(*peaks));
}

static int read_peaks(struct sl_db *db, struct rank_peaks *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask(db, sl_sql_summary_peaks, NULL, &statement, error);
  if (r < 0)
    return r;
  while ((r = sl_statement_step(statement, error)) > 0) {
    struct rank_peak *added = SL_LIST_ADD(out->ranks, out->count);
    if (!added) {
      r = sl_no_memory(error);
      break;
    }
    added->rank = sl_column_int(statement, 0);
    added->step = sl_column_is_null(statement, 1) ? -1 : sl_column_int(statement, 1);
    added->rows_of = sl_column_int(statement, 2);
    added->allocated_bytes = sl_column_int(statement, 3);
    added->reserved_bytes = sl_column_is_null(statement, 4) ? -1 : sl_column_int(statement, 4);
    added->device_bytes = sl_column_int(statement, 5);
    added->device_total_bytes = sl_column_int(statement, 6);
    added->where = strdup(sl_column_text(statement, 7));
    added->place = strdup(sl_column_text(statement, 8));
    added->highest_step = sl_column_int(statement, 9);
    added->highest_step_bytes = sl_column_int(statement, 10);
    added->highest_where = strdup(sl_column_text(statement, 11));
    if (added->allocated_bytes > out->ranks[out->worst].allocated_bytes)
      out->worst = out->count - 1;
    if (!added->where || !added->place || !added->highest_where) {
      r = sl_no_memory(error);
      break;
    }
  }
  statement = sl_statement_close(statement);
  return r;
}

/* Of all ranks, since the peak outside of steps may be the matter of one of them. */
static void print_highest_step(struct sl_output *out, const struct rank_peaks *peaks) {
  const struct rank_peak *highest = &peaks->ranks[peaks->worst];
  char bytes[SL_UNIT_CHARS], rank[32] = "";
  for (int i = 0; i < peaks->count; i++)
    if (peaks->ranks[i].highest_step_bytes > highest->highest_step_bytes)
      highest = &peaks->ranks[i];
  if (!*highest->highest_where)
    return;
  if (highest != &peaks->ranks[peaks->worst])
    snprintf(rank, sizeof rank, "rank %lld, ", (long long)highest->rank);
  sl_output_line(out, "     Highest step: %s, %sstep %lld, %s",
                 sl_format_bytes(bytes, highest->highest_step_bytes, out->exact_bytes), rank,
                 (long long)highest->highest_step, highest->highest_where);
}

static void print_headline(struct sl_output *out, const struct rank_peaks *peaks) {
  const struct rank_peak *worst = &peaks->ranks[peaks->worst];
  char allocated[SL_UNIT_CHARS], reserved[SL_UNIT_CHARS], device[SL_UNIT_CHARS], total[SL_UNIT_CHARS],
      share[SL_UNIT_CHARS];

  char step[32] = "";
  if (worst->step >= 0)
    snprintf(step, sizeof step, "step %lld, ", (long long)worst->step);
  sl_output_styled(out, SL_STYLE_bold, "Peak %s allocated: rank %lld, %s%s",
                   sl_format_bytes(allocated, worst->allocated_bytes, out->exact_bytes), (long long)worst->rank, step,
                   worst->where);
  if (worst->step < 0)
    print_highest_step(out, peaks);
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
  const struct rank_peak *worst = &peaks->ranks[peaks->worst], *least = &peaks->ranks[0];
  bool same_period = true, outside = false;
  for (int i = 0; i < peaks->count; i++) {
    least = peaks->ranks[i].allocated_bytes < least->allocated_bytes ? &peaks->ranks[i] : least;
    same_period = same_period && strcmp(peaks->ranks[i].place, worst->place) == 0;
    outside = outside || peaks->ranks[i].step < 0;
  }
  const int64_t difference = worst->allocated_bytes - least->allocated_bytes;
  if (difference == 0 && same_period)
    sl_output_line(out, "     The same peak on all %d ranks", peaks->count);
  else if (difference == 0)
    sl_output_line(out, "     As high on all %d ranks, but not in the same period", peaks->count);
  else
    sl_output_line(out, "     Lowest peak of %d ranks: %s on rank %lld, %s less%s%s", peaks->count,
                   sl_format_bytes(lowest, least->allocated_bytes, out->exact_bytes), (long long)least->rank,
                   sl_format_bytes(spread, difference, out->exact_bytes), outside ? ", " : "",
                   outside ? least->place : "");
  if (peaks->count > SL_RANKS_SIDE_BY_SIDE)
    return;
  sl_output_line(out, "%s", "");
  struct sl_table *table = sl_table_begin(out, "ranks", columns, sizeof(columns) / sizeof(columns[0]));
  for (int i = 0; i < peaks->count; i++) {
    const struct rank_peak *peak = &peaks->ranks[i];
    sl_cell_int(table, peak->rank);
    if (peak->step < 0)
      sl_cell_null(table);
    else
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
                          SL_WITH(SL_NUMBER(":rank", worst->rank), SL_NUMBER(":period", worst->rows_of),
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

/* ---- without PyTorch's allocations ---- */

/* Neither PyTorch's nor the driver's: what the device says is left. */
static int print_device_use(struct sl_db *db, struct sl_output *out, const char *why, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS];
  int r = sl_db_ask_first(db, sl_sql_summary_device_use, NULL, &statement, error);
  if (r > 0)
    sl_output_styled(out, SL_STYLE_bold, "Peak %s of the device in use: rank %lld",
                     sl_format_bytes(bytes, sl_column_int(statement, 1), out->exact_bytes),
                     (long long)sl_column_int(statement, 0));
  sl_output_line(out, "%sNo allocation was recorded, neither PyTorch's nor the driver's; %s", r > 0 ? "     " : "",
                 why);
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* Returns how many ranks there are, or a negative errno. */
static int64_t print_driver_headline(struct sl_db *db, struct sl_output *out, struct sl_ranks *chosen,
                                     struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char bytes[SL_UNIT_CHARS], lowest[SL_UNIT_CHARS];
  int64_t ranks = 0;
  int r = sl_db_ask_first(db, sl_sql_summary_driver_highest, SL_WITH(SL_RANKS(chosen)), &statement, error);
  if (r > 0) {
    ranks = sl_column_int(statement, 4);
    const int64_t highest = sl_column_int(statement, 1), least = sl_column_int(statement, 5);
    const char *range = sl_column_text(statement, 3);
    sl_output_styled(out, SL_STYLE_bold, "Peak %s of the driver's allocations: rank %lld, %s%s%s",
                     sl_format_bytes(bytes, highest, out->exact_bytes), (long long)sl_column_int(statement, 0),
                     sl_column_text(statement, 2), *range ? ", in " : "", range);
    sl_output_line(out, "     PyTorch's allocations are not in this record; these are cudaMalloc's and its like");
    if (ranks > 1 && !chosen->text)
      sl_output_line(out, "     Lowest peak of %lld ranks: %s", (long long)ranks,
                     sl_format_bytes(lowest, least, out->exact_bytes));
    if (ranks > SL_RANKS_SIDE_BY_SIDE && !chosen->text && out->format == SL_FORMAT_text)
      sl_ranks_narrow(chosen, sl_column_int(statement, 0));
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : ranks;
}

int sl_print_driver_peak(struct sl_db *db, struct sl_output *out, const struct sl_ranks *ranks, const char *why,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"owner", "Alive at the peak", SL_UNIT_text, 0},
      {"range", "Allocated in", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"allocations", "Allocations", SL_UNIT_number, 0},
      {"place", "Place", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
  };
  static const struct sl_listing owners = {"driver", SL_COLUMNS(columns), sl_sql_summary_driver_owners,
                                           .only_with_rows = true};
  int r = sl_db_tell(db, sl_sql_summary_driver_peaks, NULL, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  struct sl_ranks chosen = *ranks;
  const int64_t count = print_driver_headline(db, out, &chosen, error);
  if (count < 0)
    return (int)count;
  if (count == 0 && out->format == SL_FORMAT_text)
    return print_device_use(db, out, why, error);
  const int64_t rows = sl_print_listing(db, out, &owners, SL_WITH(SL_RANKS(&chosen)), error);
  return rows < 0 ? (int)rows : 0;
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
    r = sl_print_driver_peak(db, out, &(const struct sl_ranks){0},
                             in_info ? "what follows says why" : "'shardledger info' says why", error);
    goto finish;
  }
  sl_output_line(out, "%s", "");
  print_headline(out, &peaks);
  if (peaks.count > 1)
    print_ranks(out, &peaks);
  if (peaks.count > 1)
    r = sl_print_rank_heading(db, out, error);
  if (r < 0)
    goto finish;
  sl_output_line(out, "%s", "");
  r = print_categories(db, out, &peaks, error);
  if (r == 0)
    r = print_owners(db, out, &peaks, error);

finish:
  free_peaks(&peaks);
  return r;
}

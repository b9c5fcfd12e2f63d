/*
 * The post-mortem: what was asked for and by whom, why it did not fit, who held memory then, and what would help. Where
 * a process was killed or crashed without a refused request, the end of its log is the instant to look at.
 */
#include "ask_ledger.h"
#include "command.h"
#include "commands/advice.h"
#include "commands/oom_death.h"
#include "commands/oom_print.h"
#include "commands/rank_lines.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct selection {
  struct sl_ranks ranks;
  bool deaths; /* only who died when, rank by rank */
};

/* ---- which one ---- */

/* A rank whose log just stops; the one that stopped first. */
static int read_end(struct sl_db *db, const struct selection *selection, struct sl_death *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_oom_end, SL_WITH(SL_RANKS(&selection->ranks)), &statement, error);
  if (r > 0)
    *out = (struct sl_death){
        .rank = sl_column_int(statement, 0),
        .at_ns = -1,
        .step = sl_column_int(statement, 1),
        .phase = sl_column_int(statement, 2),
        .ranks = sl_column_int(statement, 3),
        .clean = sl_column_int(statement, 4),
        .is_snapshot = sl_column_is_null(statement, 4),
        .allocated_bytes = sl_column_int(statement, 5),
    };
  statement = sl_statement_close(statement);
  return r;
}

/* Where outside of steps it was, and which step to compare it with. */
static int read_place(struct sl_db *db, struct sl_death *death, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = 0;
  death->before = death->step - 1;
  if (death->step >= 0)
    return 0;
  death->before = -1;
  r = sl_db_ask_first(db, sl_sql_oom_place, SL_WITH(SL_NUMBER(":rank", death->rank), SL_GIVEN(":at", death->at_ns)),
                      &statement, error);
  if (r > 0) {
    snprintf(death->place, sizeof death->place, "%s", sl_column_text(statement, 0));
    death->before = sl_column_is_null(statement, 1) ? -1 : sl_column_int(statement, 1);
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* ---- the first lines ---- */

/* The ranges around the request, from outside to inside: "step 3 > forward of Model > …". */
static int print_ranges(struct sl_db *db, struct sl_output *out, const struct sl_death *death, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = 0;
  if (death->phase)
    r = sl_db_ask_first(db, sl_sql_oom_ranges, SL_WITH(SL_NUMBER(":phase", death->phase)), &statement, error);
  if (r > 0)
    sl_output_line(out, "     %s %s", death->at_ns < 0 ? "Within" : "In", sl_column_text(statement, 0));
  else if (r == 0)
    sl_output_line(out, "     In no range that was recorded");
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* The line of the user's code that asked, and those that called it. */
static int print_code(struct sl_db *db, struct sl_output *out, const struct sl_death *death, struct sl_error *error) {
  struct sl_statement *s = NULL;
  int r = death->at_ns < 0
              ? 0
              : sl_db_ask_first(db, sl_sql_oom_code,
                                SL_WITH(SL_NUMBER(":rank", death->rank), SL_NUMBER(":at", death->at_ns)), &s, error);
  if (r > 0) {
    sl_output_line(out, "     %s %s in %s",
                   strcmp(sl_column_text(s, 2), "waiting") == 0 ? "While the main thread waited at" : "Asked for by",
                   sl_column_text(s, 0), sl_column_text(s, 1));
    sl_output_line(out, "     %s", sl_column_text(s, 3));
  }
  s = sl_statement_close(s);
  return r < 0 ? r : 0;
}

static void print_reason(struct sl_output *out, const struct sl_death *death) {
  char requested[SL_UNIT_CHARS], free_bytes[SL_UNIT_CHARS], cached[SL_UNIT_CHARS], largest[SL_UNIT_CHARS],
      allocated[SL_UNIT_CHARS], reserved[SL_UNIT_CHARS], others[SL_UNIT_CHARS];
  sl_format_bytes(requested, death->requested_bytes, out->exact_bytes);
  sl_format_bytes(free_bytes, death->free_bytes, out->exact_bytes);
  sl_format_bytes(cached, death->cached_bytes, out->exact_bytes);
  sl_format_bytes(largest, death->largest_free_bytes, out->exact_bytes);
  sl_format_bytes(allocated, death->allocated_bytes, out->exact_bytes);
  sl_format_bytes(reserved, death->reserved_bytes, out->exact_bytes);
  sl_format_bytes(others, death->other_bytes, out->exact_bytes);
  if (death->reserved_known)
    sl_output_line(out, "     %s allocated, %s reserved by PyTorch; its cache has %s free, the largest block %s",
                   allocated, reserved, cached, largest);
  if (sl_is_block_of_others(death))
    sl_output_line(out, "     its blocks that are large enough can't serve this: another stream's or pool's, or kept "
                        "whole by max_split_size_mb");
  if (!death->reserved_known)
    sl_output_line(out, "     %s allocated by PyTorch; what it reserved is not known",
                   death->allocated_known ? allocated : "an unknown amount");
  if (strcmp(death->reason, "limit") == 0)
    sl_output_line(out,
                   "Why: a limit of this process, as of torch.cuda.set_per_process_memory_fraction: the device had %s "
                   "free",
                   free_bytes);
  else if (strcmp(death->reason, "fragmentation") == 0) {
    sl_output_line(out,
                   "Why: fragmentation: with %s free in the cache and %s on the device it would fit, but not in one "
                   "block%s",
                   cached, death->free_known ? free_bytes : "an unknown rest",
                   sl_is_block_of_others(death) ? " that it could use" : "");
    sl_output_line(out, "     'shardledger device --segments' shows what keeps the segments");
  } else if (strcmp(death->reason, "cached") == 0)
    sl_output_line(out, "Why: PyTorch's cache keeps %s that it does not use, which %s could not have", cached,
                   death->source);
  else if (strcmp(death->reason, "others") == 0)
    sl_output_line(out, "Why: others hold the device: %s are other processes' or unexplained", others);
  else
    sl_output_line(out, "Why: too much is live; %s of the device were free",
                   death->free_known ? free_bytes : "unknown bytes");
}

/* Who was killed before a request was refused: the refusal may be what came of it. */
static int print_died_before(struct sl_db *db, struct sl_output *out, const struct sl_death *death,
                             struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char before[SL_UNIT_CHARS];
  int r =
      death->at_ns < 0 || !death->deadly
          ? 0
          : sl_db_ask_first(db, sl_sql_oom_died_before, SL_WITH(SL_NUMBER(":rank", death->rank)), &statement, error);
  if (r > 0) {
    const bool one = sl_column_int(statement, 0) == 1;
    sl_output_styled(out, SL_STYLE_red,
                     "Rank%s %.200s died %s%s before that: %s log%s just stop%s (killed, or crashed); 'shardledger oom "
                     "--rank %" PRId64 "' shows what it held",
                     one ? "" : "s", sl_column_text(statement, 1), one ? "" : "up to ",
                     sl_format_duration(before, sl_column_int(statement, 3)), one ? "its" : "their", one ? "" : "s",
                     one ? "s" : "", sl_column_int(statement, 2));
  }
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* Which of several refused requests this one is. */
static const char *which_request(const struct sl_death *death) {
  if (!death->deadly)
    return "this is the last, and the job went on after each";
  if (death->unordered < 0)
    return "which of them ended a rank first is unknown: their hosts' clocks can't be compared";
  return death->unordered ? "this is the first that ended a rank, of those whose hosts' clocks can be compared"
                          : "this is the first that ended a rank";
}

static int print_headline(struct sl_db *db, struct sl_output *out, const struct sl_death *death,
                          struct sl_error *error) {
  char requested[SL_UNIT_CHARS], segment[SL_UNIT_CHARS], message[80] = "", when[192] = "outside of any step";
  if (*death->place)
    snprintf(when, sizeof when, "%s", death->place);
  if (death->step >= 0)
    snprintf(when, sizeof when, "in step %" PRId64, death->step);
  if (death->wanted_bytes != death->requested_bytes)
    snprintf(message, sizeof message, " (its message says %s, the segment for it)",
             sl_format_bytes(segment, death->wanted_bytes, out->exact_bytes));
  sl_output_line(out, "%s", "");
  if (death->at_ns < 0 && death->is_snapshot)
    sl_output_styled(out, SL_STYLE_bold, "Rank %" PRId64 "'s memory snapshot has no refused request in its history",
                     death->rank);
  else if (death->at_ns < 0 && death->clean)
    sl_output_styled(out, SL_STYLE_bold, "Rank %" PRId64 " ended in order, and no request was refused", death->rank);
  else if (death->at_ns < 0)
    sl_output_styled(out, SL_STYLE_red,
                     "Rank %" PRId64 "'s log just stops, %s: it was killed, crashed, or is still running", death->rank,
                     when);
  else
    sl_output_styled(out, death->deadly ? SL_STYLE_red : SL_STYLE_yellow,
                     "Out of memory: rank %" PRId64 ", %s: %s asked for by %s%s%s", death->rank, when,
                     sl_format_bytes(requested, death->requested_bytes, out->exact_bytes),
                     strcmp(death->source, "allocator") == 0 ? "PyTorch's allocator" : death->source, message,
                     death->deadly ? "" : ", and the job went on");
  int r = print_died_before(db, out, death, error);
  if (r == 0)
    r = print_ranges(db, out, death, error);
  if (r == 0)
    r = print_code(db, out, death, error);
  if (r == 0 && death->at_ns >= 0)
    print_reason(out, death);
  if (death->requests > 1)
    sl_output_line(out, "%" PRId64 " requests were refused%s; %s", death->requests,
                   death->ranks > 1 ? " on all ranks together" : "", which_request(death));
  return r;
}

/* Requests that were served in the end, but only after the cache was given back: the memory was short before it ran
 * out. */
static int print_retries(struct sl_db *db, struct sl_output *out, const struct sl_death *death,
                         struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char cost[SL_UNIT_CHARS], freed[SL_UNIT_CHARS];
  int r = sl_db_ask_first(db, sl_sql_oom_retries,
                          SL_WITH(SL_NUMBER(":rank", death->rank), SL_GIVEN(":at", death->at_ns)), &statement, error);
  const int64_t times = r > 0 ? sl_column_int(statement, 0) : 0;
  if (times)
    sl_output_line(out,
                   "cudaMalloc was refused %" PRId64
                   " time%s before and served after PyTorch's cache was freed (%s given back): that cost %s",
                   times, times == 1 ? "" : "s", sl_format_bytes(freed, sl_column_int(statement, 2), out->exact_bytes),
                   sl_format_duration(cost, sl_column_int(statement, 1)));
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* ---- tables ---- */

static const struct sl_column request_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"at_ns", "At", SL_UNIT_instant, 0},
    {"step", "Step", SL_UNIT_number, 0},
    {"source", "Asked by", SL_UNIT_text, 0},
    {"device", "GPU", SL_UNIT_number, 0},
    {"requested_bytes", "Requested", SL_UNIT_bytes, 0},
    {"free_bytes", "Free", SL_UNIT_bytes, 0},
    {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
    {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
    {"largest_free_bytes", "Largest", SL_UNIT_bytes, 0},
    {"reason", "Why", SL_UNIT_text, 0},
    {"deadly", "Last", SL_UNIT_number, 0},
    {"module", "Module", SL_UNIT_text, 0},
    {"ranges", "In", SL_UNIT_text, 0},
    {"code_line", "Line", SL_UNIT_text, 0},
    {"function", "Function", SL_UNIT_text, 0},
};
static const struct sl_column line_columns[] = {
    {"code_line", "Line", SL_UNIT_text, 0},
    {"function", "Function", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"share", "Share", SL_UNIT_share, 0},
    {"category", "Most of it", SL_UNIT_text, 0},
    {"category_bytes", "Bytes", SL_UNIT_bytes, 0},
    {"allocations", "Allocations", SL_UNIT_number, 0},
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
};
static const struct sl_column module_columns[] = {
    {"module", "Module", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"category", "Most of it", SL_UNIT_text, 0},
    {"category_bytes", "Bytes", SL_UNIT_bytes, 0},
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
};
static const struct sl_column largest_columns[] = {
    {"id", "Largest", SL_UNIT_number, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"category", "Category", SL_UNIT_text, 0},
    {"name", "Name", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"module", "Module", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"step", "Made in step", SL_UNIT_number, 0},
    {"where", "In", SL_UNIT_text, 0},
    {"code_line", "Line", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
};
static const struct sl_column device_columns[] = {
    {"owner", "The device", SL_UNIT_text, 0},
    {"bytes", "Bytes", SL_UNIT_bytes, 0},
    {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
};

static const struct sl_column death_columns[] = {
    {"rank", "Rank", SL_UNIT_number, 0},
    {"host", "Host", SL_UNIT_text, 0},
    {"how", "How", SL_UNIT_text, 0},
    {"at_ns", "At", SL_UNIT_instant, 0},
    {"first_host_ns", "By the first host's clock", SL_UNIT_instant, 0},
    {"after_ns", "After the first", SL_UNIT_duration, 0},
    {"error_ns", "Within", SL_UNIT_duration, 0},
    {"order", "Order", SL_UNIT_text, 0},
    {"waiting_in", "Waiting in", SL_UNIT_text, 0},
    {"waiting_comm", "Communicator", SL_UNIT_number, 0},
    {"waiting_seq", "Call", SL_UNIT_number, 0},
    {"waiting_module", "Module", SL_UNIT_text, 0},
    {"waiting_since_ns", "Since", SL_UNIT_instant, 0},
};
static const struct sl_column death_group_columns[] = {
    {"ranks", "Died", SL_UNIT_text, 0},
    {"count", "Ranks", SL_UNIT_number, 0},
    {"how", "How", SL_UNIT_text, 0},
    {"after_ns", "After the first", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
    {"until_ns", "until", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
    {"order", "Order", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"waiting_in", "Waiting in", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
    {"waiting_ns", "for", SL_UNIT_duration, SL_COLUMN_HIDE_EMPTY},
};

/* Every death, for CSV and JSON, and their groups, for text. */
static const struct sl_listing deaths = {"deaths", SL_COLUMNS(death_columns), sl_sql_oom_deaths, .heading = NULL};
static const struct sl_listing death_groups = {"deaths", SL_COLUMNS(death_group_columns), sl_sql_oom_death_groups,
                                               .only_with_rows = true};

/* Every refused request, for CSV and JSON. */
static const struct sl_listing requests = {"requests", SL_COLUMNS(request_columns), sl_sql_oom_requests,
                                           .heading = NULL};
enum { SHOWN = 10 }; /* rows in text */
static const struct sl_listing tables[] = {
    {"modules", SL_COLUMNS(module_columns), sl_sql_oom_modules, .only_with_rows = true, .most = SHOWN},
    {"lines", SL_COLUMNS(line_columns), sl_sql_oom_lines, .only_with_rows = true, .most = SHOWN},
    {"largest", SL_COLUMNS(largest_columns), sl_sql_oom_largest, .only_with_rows = true, .most = SHOWN},
    {"device", SL_COLUMNS(device_columns), sl_sql_oom_device, .only_with_rows = true},
};

static int print_categories(struct sl_db *db, struct sl_output *out, const struct sl_death *death,
                            struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"category", "Alive", SL_UNIT_text, 0},
      {"bytes", "Bytes", SL_UNIT_bytes, 0},
      {"share", "Share", SL_UNIT_share, 0},
      {"allocations", "Allocations", SL_UNIT_number, 0},
      {"before_bytes", "A step before", SL_UNIT_bytes, SL_COLUMN_HIDE_EMPTY},
      {"change_bytes", "Change", SL_UNIT_change, SL_COLUMN_HIDE_EMPTY},
      {"compared_with", "Compared with", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"rank", "Rank", SL_UNIT_number, SL_COLUMN_DATA_ONLY},
  };
  struct sl_statement *statement = NULL;
  struct sl_table *table = NULL;
  char compared[160] = "";
  int r = sl_db_ask(
      db, sl_sql_oom_categories,
      SL_WITH(SL_NUMBER(":rank", death->rank), SL_NUMBER(":phase", death->phase), SL_NUMBER(":before", death->before)),
      &statement, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  table = sl_table_begin(out, "categories", SL_COLUMNS(columns));
  while ((r = sl_statement_step(statement, error)) > 0) {
    sl_cell_columns(table, statement, 0, 7);
    snprintf(compared, sizeof compared, "%s", sl_column_text(statement, 6));
  }
  table = sl_table_end(table);
  statement = sl_statement_close(statement);
  if (r == 0 && *compared)
    sl_output_line(out, "A step before is the highest point of: %s", compared);
  else if (r == 0)
    sl_output_line(out, "There is no earlier step to compare it with");
  return r;
}

/* Who died in which order: in groups, or in text each rank. */
static int print_deaths(struct sl_db *db, struct sl_output *out, bool each, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  char clocks[SL_UNIT_CHARS];
  int r = (int)sl_print_listing(db, out, each || out->format != SL_FORMAT_text ? &deaths : &death_groups, NULL, error);
  if (out->format != SL_FORMAT_text)
    return r;
  if (r <= 0)
    return r;
  r = sl_db_ask_first(db, sl_sql_oom_clocks, NULL, &statement, error);
  if (r > 0 && !sl_column_is_null(statement, 1))
    sl_output_line(out, "Other hosts' clocks are known to %s against %s's",
                   sl_format_duration(clocks, sl_column_int(statement, 1)), sl_column_text(statement, 0));
  if (r > 0 && !sl_column_is_null(statement, 2))
    sl_output_line(out, "So ranks %s may have died before the first", sl_column_text(statement, 2));
  if (r > 0 && !sl_column_is_null(statement, 3))
    sl_output_line(out,
                   "The order of ranks %s is unknown: no collective that ended joins their hosts to the first rank's",
                   sl_column_text(statement, 3));
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* What the last line may say of all ranks: not more than was recorded. */
static int print_in_order(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask_first(db, sl_sql_oom_in_order, NULL, &statement, error);
  sl_output_line(out, "%s", "");
  if (r > 0 && sl_column_int(statement, 1))
    sl_output_line(out, "No request was refused in what the memory snapshots tell.");
  else if (r > 0 && sl_column_is_null(statement, 0))
    sl_output_line(out, "No request was refused, and every rank ended in order.");
  else if (r > 0)
    sl_output_line(out,
                   "No request was refused on the ranks that were recorded, and they ended in order; how ranks %s did "
                   "is not known.",
                   sl_column_text(statement, 0));
  statement = sl_statement_close(statement);
  return r < 0 ? r : 0;
}

/* What would help against the refused request; it makes the table `held`. */
static int print_advice(struct sl_db *db, struct sl_output *out, const struct sl_death *death, struct sl_error *error) {
  struct sl_advise advise = {0};
  int r = sl_advise_run(db, (uint32_t)death->rank, death->at_ns, 0, &advise, error);
  if (r < 0)
    return r;
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "Advice: what would help ('shardledger advise' has more)");
  sl_print_goal(out, &advise);
  sl_print_advice(out, &advise);
  sl_advise_free(&advise);
  return 0;
}

static int print_oom(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  const struct selection *selection = context;
  struct sl_death death = {0};
  int r = sl_check_selection(db, &selection->ranks, -1, error);
  if (r < 0)
    return r;
  r = sl_add_requests(db, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  sl_output_document(out);
  if (r == 0 && selection->deaths) {
    r = print_deaths(db, out, true, error);
    return r < 0 ? r : 0;
  }
  if (r == 0 && out->format != SL_FORMAT_text)
    r = (int)sl_print_listing(db, out, &requests, SL_WITH(SL_RANKS(&selection->ranks)), error);
  if (r >= 0 && out->format != SL_FORMAT_text)
    r = print_deaths(db, out, true, error);
  if (r >= 0)
    r = sl_read_request(db, &selection->ranks, &death, error);
  if (r == 0)
    r = read_end(db, selection, &death, error);
  if (r < 0)
    return r;
  if (r == 0)
    return print_in_order(db, out, error);
  r = read_place(db, &death, error);
  if (r == 0)
    r = print_headline(db, out, &death, error);
  if (r == 0)
    r = sl_print_rank_difference(db, out, death.rank, error);
  if (r == 0)
    r = print_retries(db, out, &death, error);
  if (r == 0 && !selection->ranks.text && death.ranks > 1 && out->format == SL_FORMAT_text)
    r = print_deaths(db, out, false, error);
  const struct sl_parameter *parameters = SL_WITH(SL_NUMBER(":rank", death.rank), SL_GIVEN(":at", death.at_ns));
  if (r == 0 && death.at_ns < 0)
    r = sl_db_tell(db, sl_sql_oom_held, parameters, error);
  if (r == 0 && death.at_ns >= 0)
    r = print_advice(db, out, &death, error);
  if (r == 0)
    r = print_categories(db, out, &death, error);
  for (size_t i = 0; i < sizeof tables / sizeof tables[0] && r >= 0; i++)
    r = (int)sl_print_listing(db, out, &tables[i], parameters, error);
  return r < 0 ? r : 0;
}

/* The death that the whole run is about: 1, 0 where there is none, or a negative errno. */
static int find_death(struct sl_db *db, struct sl_death *death, struct sl_error *error) {
  const struct selection all = {.ranks = {.text = NULL}};
  int r = sl_add_requests(db, error);
  if (r == 0)
    r = sl_read_request(db, &all.ranks, death, error);
  if (r == 0 || (r > 0 && !death->deadly))
    r = read_end(db, &all, death, error);
  if (r <= 0)
    return r;
  r = read_place(db, death, error);
  return r < 0 ? r : 1;
}

int sl_print_death(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_death death = {0};
  int r = find_death(db, &death, error);
  return r <= 0 ? r : print_headline(db, out, &death, error);
}

int sl_print_death_tables(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_death death = {0};
  int r = find_death(db, &death, error);
  if (r <= 0)
    return r;
  r = sl_db_tell(db, sl_sql_oom_deaths_make, NULL, error);
  if (r == 0)
    r = (int)sl_print_listing(db, out, &death_groups, NULL, error);
  if (r >= 0 && death.at_ns < 0)
    r = sl_db_execute(db, "DROP TABLE IF EXISTS temp.held", error); /* that of another rank's peak */
  if (r >= 0 && death.at_ns < 0)
    r = sl_db_tell(db, sl_sql_oom_held, SL_WITH(SL_NUMBER(":rank", death.rank)), error);
  return r < 0 ? r : print_categories(db, out, &death, error);
}

int sl_cmd_oom(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct selection selection = {.ranks = {.text = NULL}};
  const struct sl_argument arguments[] = {
      {"rank", 0, "RANKS", "these ranks, such as 7 or 0-3,7; also when they ended in order", SL_ARGUMENT_RANKS,
       &selection.ranks.text},
      {"deaths", 0, NULL, "only when and how each rank died", SL_ARGUMENT_FLAG, &selection.deaths},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  return r < 0 ? sl_parse_exit(r) : sl_print_report(path, &format, print_oom, &selection);
}

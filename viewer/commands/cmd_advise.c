/*
 * What would make a run fit: the cheapest changes first, each with what it leaves of the peak and how sure that is. The
 * engine is storage/advise.
 */
#include "ask_ledger.h"
#include "command.h"
#include "commands/advice.h"
#include "commands/largest_batch.h"
#include "commands/oom_death.h"
#include "commands/summary.h"
#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct question {
  struct sl_ranks ranks;
  int64_t budget_bytes; /* 0: not given */
  struct sl_batch_question batch;
};

int sl_advise_choose(struct sl_db *db, const struct sl_ranks *ranks, uint32_t *rank, int64_t *at_ns,
                     struct sl_error *error) {
  struct sl_statement *row = NULL;
  struct sl_death death = {0};
  int r = sl_add_requests(db, error);
  if (r == 0)
    r = sl_read_request(db, ranks, &death, error);
  if (r < 0)
    return r;
  if (r > 0 && death.deadly) {
    *rank = (uint32_t)death.rank;
    *at_ns = death.at_ns;
    return 0;
  }
  *at_ns = -1;
  r = sl_db_ask_first(db, sl_sql_advise_rank, SL_WITH(SL_RANKS(ranks)), &row, error);
  if (r == 0)
    r = sl_error_set(error, -ENODATA,
                     "no allocation was recorded, so there is nothing to advise on; 'shardledger info' "
                     "says what was recorded");
  else if (r > 0 && !sl_column_int(row, 1))
    r = sl_error_set(error, -ENODATA,
                     "it has no steps, and nothing was refused: there is nothing to advise on; "
                     "'shardledger peaks' shows what holds its memory");
  if (r > 0)
    *rank = (uint32_t)sl_column_int(row, 0);
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static void headline_print(struct sl_output *out, const struct sl_advise *advise) {
  const struct sl_goal *goal = &advise->goal;
  char bytes[SL_UNIT_CHARS], where[40] = "outside of steps";
  if (goal->step >= 0)
    snprintf(where, sizeof where, "in step %" PRId64, goal->step);
  sl_output_line(out, "%s", "");
  if (goal->is_refused)
    sl_output_styled(out, SL_STYLE_red, "Rank %u was refused %s %s", goal->rank,
                     sl_format_bytes(bytes, (int64_t)goal->refused_bytes, out->exact_bytes), where);
  else
    sl_output_styled(out, SL_STYLE_bold, "Rank %u has the highest peak: %s allocated, %s", goal->rank,
                     sl_format_bytes(bytes, (int64_t)goal->allocated_bytes, out->exact_bytes), where);
}

static void code_print(struct sl_output *out, const struct sl_advise *advise) {
  if (!advise->count || advise->items[0].fits >= SL_FITS_hardly || advise->verdict.suffices != SL_SUFFICES_something)
    return;
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "To paste, of the first:");
  for (const char *line = advise->items[0].code; *line;) {
    const int length = (int)strcspn(line, "\n");
    sl_output_line(out, "    %.*s", length, line);
    line += length + (line[length] == '\n');
  }
}

static int print_advise(struct sl_db *db, struct sl_output *out, void *context, struct sl_error *error) {
  struct question *question = context;
  struct sl_advise advise = {0};
  uint32_t rank = 0;
  int64_t at_ns = -1;
  int r = sl_check_selection(db, &question->ranks, -1, error);
  if (r == 0)
    r = sl_batch_begin(&question->batch, error);
  if (r == 0)
    r = sl_print_coverage(db, out, error);
  if (r == 0)
    r = sl_advise_choose(db, &question->ranks, &rank, &at_ns, error);
  if (r == 0)
    r = sl_advise_run(db, rank, at_ns, (uint64_t)question->budget_bytes, &advise, error);
  if (r < 0)
    return r;
  sl_output_document(out);
  headline_print(out, &advise);
  sl_print_goal(out, &advise);
  sl_output_line(out, "%s", "");
  sl_print_advice(out, &advise);
  if (question->batch.run_count)
    r = sl_print_largest_batch(out, db, &advise.goal, &question->batch, error);
  if (r < 0) {
    sl_advise_free(&advise);
    return r;
  }
  if (out->format != SL_FORMAT_text) {
    sl_print_goal_row(out, &advise);
  } else {
    sl_print_no_advice(out, &advise);
    sl_output_line(out, "%s", "");
    sl_print_floor(out, &advise);
    code_print(out, &advise);
  }
  sl_advise_free(&advise);
  return 0;
}

int sl_cmd_advise(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct question question = {.batch = {.own = -1}};
  const struct sl_argument arguments[] = {
      {"budget", 0, "SIZE", "what the job may take of the device; default: what refused it, else the device's memory",
       SL_ARGUMENT_SIZE, &question.budget_bytes},
      {"batch", 0, "N", "the run's batch, to be told the largest that fits: with --at", SL_ARGUMENT_NUMBER,
       &question.batch.own},
      {"at", 0, "N=DIR", "batch: in DIR is the same job with a batch of N; once or twice", SL_ARGUMENT_LIST,
       &question.batch.at},
      SL_RANKS_ARGUMENT(question.ranks),
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *path = NULL;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, &path, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (!sl_batch_take(&question.batch))
    return SL_EXIT_USAGE;
  r = sl_print_report(path, &format, print_advise, &question);
  sl_batch_done(&question.batch);
  return r;
}

/* Prints the largest batch that fits, for `advise --batch`. */
#include "commands/largest_batch.h"

#include "ask_ledger.h"
#include "open_ledger.h"
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

bool sl_batch_take(const struct sl_batch_question *question) {
  if (question->own < 0 && !question->at.count)
    return true;
  if (question->own < 1) {
    sl_complain("--batch: the run has at least one sample, as in --batch 4");
    return false;
  }
  if (question->at.count < 1 || question->at.count > SL_SCALE_RUNS) {
    sl_complain(
        "--batch: one run does not tell how sizes grow with it; one or two others of the same job do, as --at 8=DIR");
    return false;
  }
  return true;
}

int sl_batch_begin(struct sl_batch_question *question, struct sl_error *error) {
  for (int i = 0; i < question->at.count; i++) {
    char *end = NULL;
    errno = 0;
    const long long batch = strtoll(question->at.items[i], &end, 10);
    if (errno || batch < 1 || batch > INT32_MAX || batch == question->own || *end != '=')
      return sl_error_set(
          error, -EINVAL,
          "--at: '%s' is not as 8=DIR, where the run in DIR has a batch of 8, another one than this run",
          question->at.items[i]);
    struct sl_batch_run *run = &question->runs[i];
    run->batch = (uint64_t)batch;
    int r = sl_open_ledger(end + 1, &run->db, error);
    if (r < 0)
      return sl_say_other(r, error);
    question->run_count++;
  }
  return 0;
}

void sl_batch_done(struct sl_batch_question *question) {
  for (size_t i = 0; i < question->run_count; i++)
    question->runs[i].db = sl_db_close(question->runs[i].db);
}

static void text_print(struct sl_output *out, const struct sl_goal *goal, const struct sl_batch_question *question,
                       const struct sl_largest_batch *largest) {
  char limit[SL_UNIT_CHARS], low[SL_UNIT_CHARS], high[SL_UNIT_CHARS], batches[64];
  int length = snprintf(batches, sizeof batches, "%" PRIu64, largest->own);
  for (size_t i = 0; i < question->run_count; i++)
    length += snprintf(batches + length, sizeof batches - (size_t)length, "%s%" PRIu64,
                       i + 1 == question->run_count ? " and " : ", ", question->runs[i].batch);
  sl_output_line(out, "%s", "");
  if (*largest->why) {
    sl_output_line(out, "Largest batch: not known: %s", largest->why);
    return;
  }
  sl_format_bytes(limit, (int64_t)goal->limit_bytes, out->exact_bytes);
  sl_format_bytes(low, (int64_t)largest->reserved.low, out->exact_bytes);
  sl_format_bytes(high, (int64_t)largest->reserved.high, out->exact_bytes);
  if (!largest->batch)
    sl_output_styled(out, SL_STYLE_red, "Largest batch: none, not even 1 (estimate, fitted to batches %s)", batches);
  else
    sl_output_styled(out, SL_STYLE_bold,
                     "Largest batch, with nothing else changed: %s%" PRIu64 " (estimate, fitted to batches %s%s)",
                     largest->is_most ? "at least " : "", largest->batch, batches,
                     largest->batch > largest->last ? ", and beyond them" : "");
  if (largest->batch)
    sl_output_line(out, "     It reserves %s%s%s of the %s that PyTorch may take, in %u play%s%s", low,
                   largest->reserved.low == largest->reserved.high ? "" : " to ",
                   largest->reserved.low == largest->reserved.high ? "" : high, limit, largest->plays,
                   largest->plays == 1 ? "" : "s",
                   largest->retries ? "; cached segments are given back to make room, which costs time" : "");
  if (largest->next_allocated)
    sl_output_line(out, "     %" PRIu64 " would need %s allocated%s", largest->batch + 1,
                   sl_format_bytes(low, (int64_t)largest->next_allocated, out->exact_bytes),
                   largest->next_allocated > goal->limit_bytes ? "" : ", which leaves too little between its blocks");
  if (*largest->doubt)
    sl_output_line(out, "     %s", largest->doubt);
}

static void row_print(struct sl_output *out, const struct sl_goal *goal, const struct sl_largest_batch *largest) {
  static const struct sl_column columns[] = {
      {"rank", "Rank", SL_UNIT_number, 0},
      {"batch", "Batch", SL_UNIT_number, 0},
      {"largest_batch", "Largest", SL_UNIT_number, 0},
      {"is_most_tried", "Most tried", SL_UNIT_number, 0},
      {"standing", "Standing", SL_UNIT_text, 0},
      {"limit_bytes", "Limit", SL_UNIT_bytes, 0},
      {"reserved_bytes", "Reserved", SL_UNIT_bytes, 0},
      {"reserved_most_bytes", "At most", SL_UNIT_bytes, 0},
      {"allocated_bytes", "Allocated", SL_UNIT_bytes, 0},
      {"next_allocated_bytes", "Next", SL_UNIT_bytes, 0},
      {"retries", "Retries", SL_UNIT_number, 0},
      {"why", "Why", SL_UNIT_text, 0},
  };
  const bool is_known = !*largest->why;
  struct sl_table *table = sl_table_begin(out, "batch", SL_COLUMNS(columns));
  sl_cell_int(table, goal->rank);
  sl_cell_int(table, (int64_t)largest->own);
  if (is_known)
    sl_cell_int(table, (int64_t)largest->batch);
  else
    sl_cell_null(table);
  sl_cell_int(table, largest->is_most);
  sl_cell_text(table, is_known ? "estimate" : "refused");
  sl_cell_int(table, (int64_t)goal->limit_bytes);
  sl_cell_int(table, (int64_t)largest->reserved.low);
  sl_cell_int(table, (int64_t)largest->reserved.high);
  sl_cell_int(table, (int64_t)largest->allocated.high);
  sl_cell_int(table, (int64_t)largest->next_allocated);
  sl_cell_int(table, (int64_t)largest->retries);
  sl_cell_text(table, is_known ? largest->doubt : largest->why);
  table = sl_table_end(table);
}

int sl_print_largest_batch(struct sl_output *out, struct sl_db *db, const struct sl_goal *goal,
                           const struct sl_batch_question *question, struct sl_error *error) {
  struct sl_largest_batch largest;
  int r = sl_largest_batch(db, goal, (uint64_t)question->own, question->runs, question->run_count, &largest, error);
  if (r < 0)
    return r;
  if (out->format == SL_FORMAT_text)
    text_print(out, goal, question, &largest);
  else
    row_print(out, goal, &largest);
  return 0;
}

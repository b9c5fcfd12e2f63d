/* What a rehearsal's record says at its end: whether the ranks fit, and what is not in it. */
#include "commands/rehearsal_result.h"
#include "output/units.h"
#include "viewer_sql.h"

static int print_nccl(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  sl_output_line(out, "NCCL's own memory is not in these figures, because a rehearsal makes no communicator");
  int r = sl_db_ask(db, sl_sql_rehearse_nccl, NULL, &statement, error);
  while (r == 0 && (r = sl_statement_step(statement, error)) > 0) {
    const int64_t count = sl_column_int(statement, 3);
    char bytes[SL_UNIT_CHARS];
    sl_format_bytes(bytes, sl_column_int(statement, 4), out->exact_bytes);
    if (count)
      sl_output_line(
          out, "     Rank %lld, estimate: %s, for %lld communicator%s as NCCL %s has them on one host with NVLink%s%s",
          (long long)sl_column_int(statement, 0), bytes, (long long)count, count == 1 ? "" : "s",
          sl_column_text(statement, 5), sl_column_int(statement, 2) ? "" : "; here it is ",
          sl_column_int(statement, 2)       ? ""
          : sl_column_is_null(statement, 1) ? "another one"
                                            : sl_column_text(statement, 1));
    r = 0;
  }
  statement = sl_statement_close(statement);
  return r;
}

/* Whether each rank fits on a device of the size that was asked for, or on one like this. */
static int print_need(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  struct sl_statement *statement = NULL;
  int r = sl_db_ask(db, sl_sql_rehearse_need, NULL, &statement, error);
  while (r == 0 && (r = sl_statement_step(statement, error)) > 0) {
    const int64_t device = sl_column_int(statement, 1), reserved = sl_column_int(statement, 3),
                  other = sl_column_int(statement, 4), spare = device - reserved - other;
    char size[SL_UNIT_CHARS], needed[SL_UNIT_CHARS], torch[SL_UNIT_CHARS], rest[SL_UNIT_CHARS], left[SL_UNIT_CHARS];
    sl_format_bytes(size, device, out->exact_bytes);
    sl_format_bytes(needed, reserved + other, out->exact_bytes);
    sl_format_bytes(torch, reserved, out->exact_bytes);
    sl_format_bytes(rest, other, out->exact_bytes);
    sl_format_bytes(left, spare < 0 ? -spare : spare, out->exact_bytes);
    const long long rank = (long long)sl_column_int(statement, 0);
    const bool is_smaller = device > sl_column_int(statement, 2), is_sampled = !sl_column_is_null(statement, 4);
    if (sl_column_int(statement, 5) > 0 && is_smaller)
      sl_output_styled(out, SL_STYLE_yellow,
                       "Rank %lld ran out of memory on this device, which is smaller than %s: that says nothing of %s",
                       rank, size, size);
    else if (sl_column_int(statement, 5) > 0)
      sl_output_styled(out, SL_STYLE_red, "Rank %lld does not fit in %s: out of memory, see 'shardledger oom'", rank,
                       size);
    else if (!is_sampled)
      sl_output_styled(
          out, SL_STYLE_yellow,
          "Rank %lld: %s of %s reserved by PyTorch; the device was not sampled, so what is beside it is not known",
          rank, torch, size);
    else if (spare < 0)
      sl_output_styled(out, SL_STYLE_red,
                       "Rank %lld does not fit in %s: it needs %s, %s too many (%s reserved by PyTorch, %s beside it)",
                       rank, size, needed, left, torch, rest);
    else
      sl_output_styled(out, SL_STYLE_bold,
                       "Rank %lld fits in %s with %s to spare: it needs %s (%s reserved by PyTorch, %s beside it)",
                       rank, size, left, needed, torch, rest);
    r = 0;
  }
  statement = sl_statement_close(statement);
  return r;
}

int sl_print_rehearsal(struct sl_db *db, struct sl_output *out, struct sl_error *error) {
  int64_t ranks = 0;
  int r = sl_db_int(db, sl_sql_rehearse_ranks, &ranks, error);
  if (r < 0 || ranks == 0 || out->format != SL_FORMAT_text)
    return r;
  sl_output_line(out, "%s", "");
  r = print_need(db, out, error);
  return r < 0 ? r : print_nccl(db, out, error);
}

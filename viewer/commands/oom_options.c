#include "commands/oom_options.h"

#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS = 8 };

/* What would help, with its estimate. */
static const struct {
  const char *word;
  const char *text; /* # is the count, @ the name */
  const char *sql;
} options[] = {
    {"reshard", "# modules keep their gathered parameters: fully_shard(…, reshard_after_forward=True)",
     sl_sql_oom_option_reshard},
    {"recompute", "activation checkpointing of # modules of class @, at most", sl_sql_oom_option_recompute},
    {"batch", "half the batch, or half the sequence", sl_sql_oom_option_batch},
    {"expandable_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True makes the cache's free blocks usable",
     sl_sql_oom_option_expandable_segments},
    {"optimizer_temporaries", "the optimizer with foreach=False or fused=True, of # temporaries",
     sl_sql_oom_option_optimizer_temporaries},
    {"optimizer_in_backward", "optimizer steps in backward, each gradient freed at once (# gradients)",
     sl_sql_oom_option_optimizer_in_backward},
    {"leak", "what the last # steps left behind: see 'shardledger survivors'", sl_sql_oom_option_leak},
    {"other_processes", "the other processes on this GPU", sl_sql_oom_option_other_processes},
};

struct option {
  const char *word;
  char text[160];
  int64_t bytes;
};

static void option_say(struct option *option, const char *text, int64_t count, const char *name) {
  size_t length = 0;
  for (; *text && length + 1 < sizeof option->text; text++) {
    size_t room = sizeof option->text - length;
    int written = *text == '#'   ? snprintf(option->text + length, room, "%" PRId64, count)
                  : *text == '@' ? snprintf(option->text + length, room, "%s", name)
                                 : snprintf(option->text + length, room, "%c", *text);
    length += (size_t)written < room ? (size_t)written : room - 1;
  }
  option->text[length] = 0;
}

static int larger(const void *a, const void *b) {
  int64_t x = ((const struct option *)a)->bytes, y = ((const struct option *)b)->bytes;
  return (x < y) - (x > y);
}

static int read_options(struct sl_db *db, const struct sl_death *death, struct option found[OPTIONS], int *count,
                        struct sl_error *error) {
  int r = 0;
  for (size_t i = 0; i < sizeof options / sizeof options[0] && r == 0; i++) {
    struct sl_statement *statement = NULL;
    r = sl_db_ask_first(db, options[i].sql, SL_WITH(SL_NUMBER(":rank", death->rank), SL_GIVEN(":at", death->at_ns)),
                        &statement, error);
    if (r > 0 && sl_column_int(statement, 0) * 100 >= death->allocated_bytes && sl_column_int(statement, 0) > 0) {
      struct option *option = &found[(*count)++];
      option->word = options[i].word;
      option->bytes = sl_column_int(statement, 0);
      option_say(option, options[i].text, sl_column_int(statement, 1), sl_column_text(statement, 2));
    }
    statement = sl_statement_close(statement);
    r = r < 0 ? r : 0;
  }
  qsort(found, (size_t)*count, sizeof *found, larger);
  return r;
}

/* A leak that is enough comes first: whatever else would help is used up some steps later. */
static void put_leak_first(struct option *found, int count, int64_t missing) {
  for (int i = 1; i < count; i++)
    if (strcmp(found[i].word, "leak") == 0 && found[i].bytes >= missing) {
      const struct option leak = found[i];
      memmove(found + 1, found, (size_t)i * sizeof *found);
      found[0] = leak;
    }
}

int sl_print_oom_options(struct sl_db *db, struct sl_output *out, const struct sl_death *death,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"option", "Option", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"what", "What would help", SL_UNIT_text, SL_COLUMN_SENTENCE},
      {"estimated_bytes", "Estimate", SL_UNIT_bytes, 0},
      {"enough", "Enough", SL_UNIT_text, 0},
  };
  struct option found[OPTIONS];
  char missing_text[SL_UNIT_CHARS];
  int count = 0;
  int r = read_options(db, death, found, &count, error);
  if (r < 0 || (count == 0 && out->format == SL_FORMAT_text))
    return r;
  /*
   * It is served by one block of the cache, not for a library and none that it could not use, or by what is wanted from
   * the driver, unless that was refused for another reason than the device's free bytes.
   */
  bool allocator = strcmp(death->source, "allocator") == 0;
  int64_t missing =
      death->requested_bytes - (allocator && !sl_is_block_of_others(death) ? death->largest_free_bytes : 0);
  if (death->free_known && strcmp(death->reason, "limit") != 0 && death->wanted_bytes - death->free_bytes < missing)
    missing = death->wanted_bytes - death->free_bytes;
  if (missing < 0)
    missing = 0;
  put_leak_first(found, count, missing);
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "Options, with estimates from what was alive; %s were missing for this request",
                   sl_format_bytes(missing_text, missing, out->exact_bytes));
  struct sl_table *table = sl_table_begin(out, "options", SL_COLUMNS(columns));
  for (int i = 0; i < count; i++) {
    sl_cell_text(table, found[i].word);
    sl_cell_text(table, found[i].text);
    sl_cell_int(table, found[i].bytes);
    sl_cell_text(table, found[i].bytes >= missing ? "for this one" : "no");
  }
  table = sl_table_end(table);
  return 0;
}

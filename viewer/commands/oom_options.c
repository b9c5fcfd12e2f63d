#include "commands/oom_options.h"

#include "commands/range_queries.h"
#include "output/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { OPTIONS = 8 };

/*
 * Each query gives an estimate of bytes that would not have been there, how many things it is about, and a name. All
 * are computed from what was alive; none knows what the change would add elsewhere.
 */
static const struct {
  const char *word;
  const char *text; /* # is the count, @ the name */
  const char *sql;
} options[] = {
    {"reshard", "# modules keep their gathered parameters: fully_shard(…, reshard_after_forward=True)",
     "SELECT sum(bytes) - 2 * max(bytes), count(*), '' FROM (SELECT sum(bytes) AS bytes FROM live"
     " WHERE category = 'unsharded_param' AND module_id IS NOT NULL GROUP BY module_id) HAVING count(*) > 3"},
    {"recompute", "activation checkpointing of # modules of class @, at most",
     "SELECT sum(bytes) - max(bytes), count(*), class FROM (SELECT m.class, sum(bytes) AS bytes FROM live AS l"
     " JOIN module AS m ON m.id = l.module_id WHERE category = 'activation' AND m.parent_id IS NOT NULL GROUP BY m.id)"
     " GROUP BY class HAVING count(*) > 1 ORDER BY sum(bytes) DESC LIMIT 1"},
    {"batch", "half the batch, or half the sequence",
     "SELECT sum(bytes) / 2, 1, '' FROM live WHERE category IN ('activation', 'input')"},
    {"expandable_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True makes the cache's free blocks usable",
     "SELECT reserved_bytes - active_bytes, 1, '' FROM oom JOIN rank USING (rank) WHERE rank = :rank AND at_ns = :at"
     " AND coalesce(allocator_config, '') NOT LIKE '%expandable_segments:True%'"},
    {"optimizer_temporaries", "the optimizer with foreach=False or fused=True, of # temporaries",
     "SELECT sum(bytes) - max(bytes / allocations), sum(allocations), '' FROM live WHERE category = 'temp'"
     " AND detail = 'optimizer'"},
    {"optimizer_in_backward", "optimizer steps in backward, each gradient freed at once (# gradients)",
     "SELECT sum(bytes) - max(bytes), sum(allocations), '' FROM live WHERE category IN ('sharded_grad', 'gradient')"
     " AND EXISTS (SELECT 1 FROM oom AS o WHERE o.rank = :rank AND o.at_ns = :at AND EXISTS (WITH "
     "RECURSIVE" SL_SQL_AROUND("o.phase_id") "SELECT 1 FROM around JOIN phase AS p ON p.id = around.id"
                                             " WHERE p.kind IN ('optimizer_step', 'backward')))"},
    {"leak", "what the last # steps left behind: see 'shardledger survivors'",
     "SELECT l.end_allocated_bytes - f.end_allocated_bytes, l.step - f.step, '' FROM step AS l JOIN step AS f"
     " ON f.rank = l.rank WHERE l.rank = :rank AND l.end_ns <= coalesce(:at, l.end_ns) AND f.step = l.step - 3"
     " AND f.step > 0 AND (SELECT min(grown) FROM (SELECT end_allocated_bytes - lag(end_allocated_bytes) OVER (ORDER BY"
     "  step) AS grown FROM step AS s WHERE s.rank = l.rank AND s.step BETWEEN f.step AND l.step)) > 0"
     " ORDER BY l.step DESC LIMIT 1"},
    {"other_processes", "the other processes on this GPU",
     "SELECT sum(bytes), 1, '' FROM device_owner WHERE rank = :rank AND at_ns = :at AND owner = 'other_processes'"
     /* a limit of this process is reached whatever the others hold */
     " AND NOT EXISTS (SELECT 1 FROM oom AS o WHERE o.rank = :rank AND o.at_ns = :at AND o.free_bytes >= " SL_SQL_WANTED
     ")"},
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
    char *sql = NULL;
    if (asprintf(&sql, "WITH " SL_SQL_LIVE " SELECT * FROM (%s) WHERE :rank = :rank AND (:at IS NULL OR :at = :at)",
                 options[i].sql) < 0)
      return sl_no_memory(error);
    r = sl_db_prepare(db, sql, &statement, error);
    free(sql);
    if (r < 0)
      return r;
    sl_bind_death(statement, death);
    r = sl_statement_step(statement, error);
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
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "Options, with estimates from what was alive; %s were missing for this request",
                   sl_format_bytes(missing_text, missing, out->exact_bytes));
  struct sl_table *table = sl_table_begin(out, "options", columns, (int)(sizeof columns / sizeof columns[0]));
  for (int i = 0; i < count; i++) {
    sl_cell_text(table, found[i].word);
    sl_cell_text(table, found[i].text);
    sl_cell_int(table, found[i].bytes);
    sl_cell_text(table, found[i].bytes >= missing ? "for this one" : "no");
  }
  table = sl_table_end(table);
  return 0;
}

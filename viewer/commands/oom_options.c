#include "commands/oom_options.h"

#include "output/units.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What would help. Of the texts, # is the count and @ the name. */
static const struct option_kind {
  const char *word;
  const char *text;
  const char *counted;  /* the bytes that the figure rests on */
  const char *standing; /* "at most": a bound; "estimate": it may be more or less */
  const char *sql;
  bool is_leak; /* whatever else would help is used up some steps later */
} kinds[] = {
    {"reshard", "fully_shard(…, reshard_after_forward=True), or FULL_SHARD of FSDP1",
     "gathered parameters of # modules, less two of them", "estimate", sl_sql_oom_option_reshard, false},
    {"gradient_sync", "gradients reduced in every backward: no set_requires_gradient_sync(False), no no_sync()",
     "whole gradients of # modules, less this rank's part and, in backward, two of them", "at most",
     sl_sql_oom_option_gradient_sync, false},
    {"recompute", "activation checkpointing of # modules of class @", "their activations, less the largest module's",
     "at most", sl_sql_oom_option_recompute, false},
    {"loss", "the loss in 8 chunks, each made again in backward",
     "7/8 of # tensors of the loss, the refused one with them", "at most", sl_sql_oom_option_loss, false},
    {"kept_outputs", "not keeping what models return outside of steps, or keeping it on the host",
     "# tensors that are kept, most of @", "at most", sl_sql_oom_option_kept_outputs, true},
    {"batch", "half the batch, or half the sequence", "half of activations and inputs", "at most",
     sl_sql_oom_option_batch, false},
    {"expandable_segments", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "free blocks in PyTorch's cache",
     "at most", sl_sql_oom_option_expandable_segments, false},
    {"optimizer_temporaries", "the optimizer with foreach=False or fused=True", "# temporaries of it, less one",
     "estimate", sl_sql_oom_option_optimizer_temporaries, false},
    {"optimizer_in_backward", "optimizer steps in backward, each gradient freed at once",
     "# gradients, less the largest module's", "estimate", sl_sql_oom_option_optimizer_in_backward, false},
    {"leak", "keeping nothing of a step: see 'shardledger survivors'", "what # steps left behind", "estimate",
     sl_sql_oom_option_leak, true},
    {"other_processes", "the other processes on this GPU", "what NVML says they hold", "at most",
     sl_sql_oom_option_other_processes, false},
};

enum { OPTIONS = sizeof kinds / sizeof kinds[0] };

struct option {
  const struct option_kind *kind;
  char text[160], counted[160];
  int64_t bytes;
};

static void say(char out[static 160], const char *text, int64_t count, const char *name) {
  size_t length = 0;
  for (; *text && length + 1 < 160; text++) {
    size_t room = 160 - length;
    int written = *text == '#'   ? snprintf(out + length, room, "%" PRId64, count)
                  : *text == '@' ? snprintf(out + length, room, "%s", name)
                                 : snprintf(out + length, room, "%c", *text);
    length += (size_t)written < room ? (size_t)written : room - 1;
  }
  out[length] = 0;
}

static int larger(const void *a, const void *b) {
  int64_t x = ((const struct option *)a)->bytes, y = ((const struct option *)b)->bytes;
  return (x < y) - (x > y);
}

/* Those of a hundredth of what is allocated, or more; the largest first. */
static int read_options(struct sl_db *db, const struct sl_death *death, struct option found[OPTIONS], int *count,
                        struct sl_error *error) {
  int r = 0;
  for (size_t i = 0; i < OPTIONS && r == 0; i++) {
    struct sl_statement *statement = NULL;
    r = sl_db_ask_first(db, kinds[i].sql, SL_WITH(SL_NUMBER(":rank", death->rank), SL_GIVEN(":at", death->at_ns)),
                        &statement, error);
    if (r > 0 && sl_column_int(statement, 0) * 100 >= death->allocated_bytes && sl_column_int(statement, 0) > 0) {
      struct option *option = &found[(*count)++];
      option->kind = &kinds[i];
      option->bytes = sl_column_int(statement, 0);
      say(option->text, kinds[i].text, sl_column_int(statement, 1), sl_column_text(statement, 2));
      say(option->counted, kinds[i].counted, sl_column_int(statement, 1), sl_column_text(statement, 2));
    }
    statement = sl_statement_close(statement);
    r = r < 0 ? r : 0;
  }
  qsort(found, (size_t)*count, sizeof *found, larger);
  return r;
}

/* Leaks that are enough come first, the largest of them before the others. */
static void put_leaks_first(struct option *found, int count, int64_t missing) {
  int first = 0;
  for (int i = 0; i < count; i++)
    if (found[i].kind->is_leak && found[i].bytes >= missing) {
      const struct option leak = found[i];
      memmove(found + first + 1, found + first, (size_t)(i - first) * sizeof *found);
      found[first++] = leak;
    }
}

int sl_print_oom_options(struct sl_db *db, struct sl_output *out, const struct sl_death *death,
                         struct sl_error *error) {
  static const struct sl_column columns[] = {
      {"option", "Option", SL_UNIT_text, SL_COLUMN_DATA_ONLY},
      {"what", "What would help", SL_UNIT_text, SL_COLUMN_SENTENCE},
      {"estimated_bytes", "Saves", SL_UNIT_bytes, 0},
      {"standing", "Standing", SL_UNIT_text, 0},
      {"enough", "Enough", SL_UNIT_text, 0},
      {"counted", "Counted", SL_UNIT_text, SL_COLUMN_SENTENCE},
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
  put_leaks_first(found, count, missing);
  sl_output_line(out, "%s", "");
  sl_output_styled(out, SL_STYLE_bold, "Options, with estimates from what was alive; %s were missing for this request",
                   sl_format_bytes(missing_text, missing, out->exact_bytes));
  struct sl_table *table = sl_table_begin(out, "options", SL_COLUMNS(columns));
  for (int i = 0; i < count; i++) {
    sl_cell_text(table, found[i].kind->word);
    sl_cell_text(table, found[i].text);
    sl_cell_int(table, found[i].bytes);
    sl_cell_text(table, found[i].kind->standing);
    sl_cell_text(table, found[i].bytes >= missing ? "for this one" : "no");
    sl_cell_text(table, found[i].counted);
  }
  table = sl_table_end(table);
  return 0;
}

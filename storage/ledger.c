/*
 * A ledger is built under a name of its own and takes its place when it is whole, so that a kill leaves the old one as
 * it was.
 */
#include "ledger.h"

#include "storage/log/log_reader.h"
#include "storage/memory_file.h"
#include "storage/part_file.h"
#include "storage/run/one_job.h"
#include "storage/run/rank_groups.h"
#include "storage/run/rank_jobs.h"
#include "storage/run/run_directory.h"
#include "storage/snapshot/snapshot_log.h"
#include "storage/tables/ledger_tables.h"
#include "storage/tables/ledger_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t modified_ns(const struct stat *status) {
  return (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
}

static int meta_write(struct sl_ledger_writer *writer, const char *key, const char *value, struct sl_error *error) {
  return sl_put_meta(writer, &(struct sl_meta_cells){.key = key, .value = value}, error);
}

static int rules_write(struct sl_ledger_writer *writer, const struct sl_user_rules *rules, struct sl_error *error) {
  int r = meta_write(writer, "rules", sl_user_rules_text(rules), error);
  return r < 0 ? r : meta_write(writer, "rules_file", sl_user_rules_path(rules), error);
}

static const char *text_of(const struct sl_user_rules *rules) {
  return rules ? sl_user_rules_text(rules) : "";
}

/* Those of all directories, which have to be the same. */
static int common_rules(const char *const *directories, size_t count, struct sl_user_rules **out,
                        struct sl_error *error) {
  int r = sl_user_rules_kept(directories[0], out, error);
  for (size_t i = 1; i < count && r == 0; i++) {
    struct sl_user_rules *other = NULL;
    r = sl_user_rules_kept(directories[i], &other, error);
    if (r == 0 && strcmp(text_of(*out), text_of(other)) != 0)
      r = sl_error_set(error, -EINVAL, "%s and %s don't keep the same rules; name those to use with --rules FILE",
                       directories[0], directories[i]);
    sl_user_rules_free(other);
  }
  return r;
}

/* Where the ranks come from: the directories, one a line. */
static int sources_write(struct sl_ledger_writer *writer, const char *const *directories, size_t count,
                         struct sl_error *error) {
  struct sl_memory_file memory;
  FILE *stream = sl_memory_file_open(&memory);
  for (size_t i = 0; stream && i < count; i++)
    fprintf(stream, "%s%s", i ? "\n" : "", directories[i]);
  char *text = sl_memory_file_close(&memory, NULL);
  int r = text ? meta_write(writer, "source_directory", text, error) : sl_no_memory(error);
  free(text);
  return r;
}

static int attempts_write(struct sl_ledger_writer *writer, const struct sl_run *run, struct sl_error *error) {
  static const char *const told_by[] = {[SL_TOLD_launcher] = "launcher",
                                        [SL_TOLD_communicator] = "communicator",
                                        [SL_TOLD_time] = "rank and time",
                                        [SL_TOLD_user] = "file names",
                                        [SL_TOLD_parent] = "parent process"};
  int r = 0;
  for (size_t i = 0; i < run->attempt_count && r == 0; i++) {
    const struct sl_attempt *attempt = &run->attempts[i];
    r = sl_put_attempt(writer,
                       &(struct sl_attempt_cells){
                           .attempt = (int64_t)attempt->number,
                           .name = attempt->name,
                           .began_ns = (int64_t)attempt->start_ns,
                           .ranks = (int64_t)attempt->count,
                           .recorded = attempt->ranks,
                           .world_size = attempt->world_size < 0 ? SL_NONE : attempt->world_size,
                           .told_by = told_by[attempt->told_by],
                           .is_this = i == run->chosen,
                       },
                       error);
  }
  return r;
}

int sl_ledger_place(const char *directory, const char *attempt, char **out, struct sl_error *error) {
  struct sl_run run = {0};
  struct sl_error note;
  char name[64] = SL_LEDGER_NAME;
  error->text[0] = 0;
  int r = attempt ? sl_run_open(&directory, 1, attempt, &run, &note, error) : 0;
  if (r == 0 && attempt && run.chosen + 1 < run.attempt_count)
    snprintf(name, sizeof name, "ledger-%zu-%" PRIu64 ".sqlite", run.chosen + 1, run.attempts[run.chosen].start_ns);
  sl_run_close(&run);
  if (r == 0 && (sl_snapshot_is(directory) ? !(*out = sl_snapshot_place(directory))
                                           : asprintf(out, "%s/%s", directory, name) < 0))
    r = sl_no_memory(error);
  return r;
}

int sl_ledger_build(const char *directory, const char *output, const struct sl_ledger_options *options,
                    struct sl_error *note, struct sl_error *error) {
  return sl_ledger_merge(&directory, 1, output, options, note, error);
}

int sl_ledger_merge(const char *const *directories, size_t count, const char *output,
                    const struct sl_ledger_options *options, struct sl_error *note, struct sl_error *error) {
  struct sl_ledger_options own = options ? *options : (struct sl_ledger_options){0};
  struct sl_user_rules *kept = NULL;
  struct sl_run run = {0};
  struct sl_ledger_writer *writer = NULL;
  struct sl_part_file part = SL_PART_FILE_NONE, staged = SL_PART_FILE_NONE; /* the ledger; the rules */
  error->text[0] = 0;
  int r = sl_run_open(directories, count, own.attempt, &run, note, error);
  if (r < 0)
    goto finish;
  if (!own.rules && sl_snapshot_is(directories[0])) {
    /* Beside a file no rules are kept. */
  } else if (!own.rules) {
    r = common_rules(directories, count, &kept, error);
    own.rules = kept;
  } else if (count == 1 && !sl_snapshot_is(directories[0]) &&
             sl_user_rules_stage(own.rules, directories[0], &staged, error) < 0) {
    /* The ledger may go elsewhere, from a directory that nobody can write to. Then it keeps the rules for itself. */
    if (!note->text[0])
      *note = *error;
    error->text[0] = 0;
  }
  if (r < 0)
    goto finish;
  r = sl_part_file_make(output, &part, error);
  if (r < 0)
    goto finish;
  r = sl_ledger_writer_open(part.path, &writer, error);
  if (r == 0)
    r = sl_rank_jobs_run(&run, writer, &own, error);
  if (r == 0 && count > 1 && !run.processes[0].is_snapshot)
    r = sl_check_one_job(sl_ledger_writer_db(writer), &run, directories, error);
  if (r == 0)
    r = sources_write(writer, directories, count, error);
  if (r == 0)
    r = attempts_write(writer, &run, error);
  if (r == 0)
    r = meta_write(writer, "shardledger_version", SL_VERSION, error);
  if (r == 0)
    r = meta_write(writer, "keep", own.keep_all ? "all" : "changes", error);
  if (r == 0 && own.rules)
    r = rules_write(writer, own.rules, error);
  if (r == 0)
    r = sl_ledger_writer_finish(writer, error);
  if (r == 0)
    r = sl_rank_groups_fill(sl_ledger_writer_db(writer), error);
  writer = sl_ledger_writer_close(writer);
  if (r == 0 && staged.path)
    r = sl_user_rules_keep(own.rules, &staged, error);
  if (r == 0)
    r = sl_part_file_keep(&part, error);
finish:
  sl_ledger_writer_close(writer);
  staged = sl_part_file_close(staged);
  sl_user_rules_free(kept);
  sl_run_close(&run);
  part = sl_part_file_close(part);
  return r;
}

int sl_ledger_is_stale(const char *directory, const char *output) {
  struct stat status;
  if (lstat(output, &status) < 0)
    return errno == ENOENT ? 1 : -errno;
  uint64_t built = modified_ns(&status);
  char *rules = NULL;
  if (asprintf(&rules, "%s/" SL_USER_RULES_NAME, directory) < 0)
    return -ENOMEM;
  bool rules_changed = lstat(rules, &status) == 0 && modified_ns(&status) > built;
  free(rules);
  if (rules_changed)
    return 1;
  uint64_t changed = 0;
  int r = sl_run_changed(directory, &changed);
  return r < 0 ? r : changed >= built; /* equal: changed within one tick of the clock, perhaps later */
}

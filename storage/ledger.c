#include "ledger.h"

#include "ledger_writer.h"
#include "log_reader.h"
#include "rank_ledger.h"
#include "run_directory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sl_ledger_build(const char *directory, const char *output, const struct sl_ledger_options *options,
                    struct sl_error *note, struct sl_error *error) {
  struct sl_run run = {0};
  struct sl_ledger_writer *writer = NULL;
  char *temporary = NULL;
  uint64_t done = 0, total = 0;
  error->text[0] = 0;
  int r = sl_run_open(directory, &run, note, error);
  if (r < 0)
    goto finish;
  if (asprintf(&temporary, "%s.%ld.part", output, (long)getpid()) < 0) {
    temporary = NULL;
    r = sl_error_set(error, -ENOMEM, "out of memory");
    goto finish;
  }
  unlink(temporary); /* of a build with this process id that was killed */
  for (size_t i = 0; i < run.count; i++)
    total += run.processes[i].bytes;
  r = sl_ledger_writer_open(temporary, &writer, error);
  for (size_t i = 0; i < run.count && r == 0; i++) {
    struct sl_run_process *process = &run.processes[i];
    r = sl_ledger_writer_begin(writer, process->rank, error);
    if (r == 0)
      r = sl_rank_ledger_build(process->log, writer, options, done, total, error);
    if (r == 0)
      r = sl_ledger_writer_commit(writer, error);
    done += process->bytes;
    process->log = sl_log_close(process->log);
    if (r == 0 && options && options->progress)
      options->progress(options->progress_context, done, total);
  }
  if (r == 0)
    r = sl_write_meta(writer, "source_directory", directory, error);
  if (r == 0)
    r = sl_write_meta(writer, "shardledger_version", SL_VERSION, error);
  if (r == 0)
    r = sl_ledger_writer_finish(writer, error);
  writer = sl_ledger_writer_close(writer);
  if (r == 0 && rename(temporary, output) < 0)
    r = sl_error_set(error, -errno, "%s: %s", output, strerror(errno));
finish:
  if (r < 0 && temporary)
    unlink(temporary);
  sl_ledger_writer_close(writer);
  sl_run_close(&run);
  free(temporary);
  return r;
}

int sl_ledger_is_stale(const char *directory, const char *output) {
  struct stat status;
  if (stat(output, &status) < 0)
    return errno == ENOENT ? 1 : -errno;
  uint64_t built = (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec;
  return sl_run_changed_ns(directory) >= built; /* equal: changed within one tick of the clock, perhaps later */
}

/*
 * Sizes are looked at the more often the faster a log grows. A log that can't be trimmed is tried again, ever more
 * seldom.
 */
#include "run_trim.h"

#include "log_trim.h"
#include "plugin/format/clock.h"
#include "storage/run/run_directory.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 20000000u /* between two looks at the sizes while a log fills fast; then twice as long, up to */
#define LOOK_MAX_NS 500000000u
#define FAST_PART 64        /* of the limit, within one look */
#define VISIT_NS 500000000u /* between two looks for new logs */
#define RETRY_NS 50000000u  /* after an attempt that found nothing to drop; then twice as long, up to */
#define RETRY_MAX_NS 3200000000u
#define FAILED_MAX_NS 60000000000u /* or, where they failed, up to */
#define FAILURES_SAID 3            /* in a row: one alone may be due to what the process was just doing to its files */
#define SILENT_NS 60000000000u     /* a log that has not changed for so long, and whose process has gone, has ended */
#define DEAD_NS 3600000000000u     /* or for so long, where that can't be seen */

enum kind { UNKNOWN, OF_OTHERS, OURS };

struct trimmed {
  char *path;
  enum kind kind;
  struct sl_log_limit limit;
  uint64_t bytes, changed_ns, seen_ns; /* changed_ns of a file; seen_ns: when that was seen to change */
  pid_t worker;                        /* 0: none is at work */
  uint64_t retry_at_ns, retry_after_ns;
  unsigned failures; /* since something was dropped */
};

struct run {
  const struct sl_trim_options *options;
  char host[256];
  struct trimmed *logs;
  size_t count;
};

/* How a worker ends. */
enum { DROPPED = 0, LATER = 3, FAILED = 4, DIED = 5 };

/* ---- which logs ---- */

static int log_add(void *context, const char *path) {
  struct run *run = context;
  struct stat status;
  for (size_t i = 0; i < run->count; i++)
    if (strcmp(run->logs[i].path, path) == 0)
      return 0;
  if (lstat(path, &status) < 0 || !S_ISDIR(status.st_mode)) /* no links: files will be removed there */
    return 0;
  struct trimmed *larger = reallocarray(run->logs, run->count + 1, sizeof *larger);
  if (!larger)
    return -ENOMEM;
  run->logs = larger;
  larger[run->count] = (struct trimmed){.path = strdup(path)};
  return larger[run->count].path ? (int)(run->count++, 0) : -ENOMEM;
}

static bool has_process(const struct sl_log_limit *limit) {
  return limit->pid > 0 && (kill((pid_t)limit->pid, 0) == 0 || errno != ESRCH);
}

static bool is_over(const struct trimmed *log, uint64_t silent_ns) {
  return silent_ns > (has_process(&log->limit) ? DEAD_NS : SILENT_NS);
}

/*
 * Whether the log is one to be trimmed, and here: a log that is being written can be read on its own host only. One
 * that had ended before is no matter of ours: the directory may be used by one job after the other.
 */
static void log_identify(struct run *run, struct trimmed *log) {
  struct sl_error error = {0};
  int r = sl_log_limit_read(log->path, &log->limit, &error);
  if (r == -EAGAIN || r == -EMFILE || r == -ENFILE || r == -ENOMEM)
    return;
  log->kind = OF_OTHERS;
  log->seen_ns = sl_clock_ns(CLOCK_MONOTONIC);
  if (r < 0 || !log->limit.bytes || !sl_log_size(log->path, &log->bytes, &log->changed_ns))
    return;
  const uint64_t now = sl_clock_ns(CLOCK_REALTIME);
  if (strcmp(log->limit.host, run->host) == 0)
    log->kind = now > log->changed_ns && is_over(log, now - log->changed_ns) ? OF_OTHERS : OURS;
  else if (!run->options->parent)
    run->options->say(log->path, "it is recorded on another host; 'shardledger trim' is to run there");
}

static int visit(struct run *run) {
  int r = sl_run_visit(run->options->directory, log_add, run);
  for (size_t i = 0; i < run->count; i++)
    if (run->logs[i].kind == UNKNOWN)
      log_identify(run, &run->logs[i]);
  return r == -ENOMEM ? r : 0; /* the directory may come yet */
}

/* ---- one log ---- */

static void worker_start(struct run *run, struct trimmed *log) {
  const pid_t parent = getpid();
  log->worker = fork();
  if (log->worker == 0) {
    struct sl_error error = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(LATER);
    int r = sl_log_trim(log->path, log->limit.bytes, &error);
    if (r < 0 && r != -EAGAIN && log->failures + 1 == FAILURES_SAID)
      run->options->say(log->path, error.text);
    _exit(r == 0 ? DROPPED : r == -EAGAIN ? LATER : FAILED);
  }
  if (log->worker < 0) { /* no process could be made: there may be one later */
    log->worker = 0;
    log->retry_at_ns = sl_clock_ns(CLOCK_MONOTONIC) + RETRY_MAX_NS;
  }
}

static void worker_ended(const struct run *run, struct trimmed *log, int status) {
  const int how = WIFEXITED(status) ? WEXITSTATUS(status) : DIED;
  log->worker = 0;
  if (how == DROPPED) {
    log->retry_at_ns = log->retry_after_ns = 0;
    log->failures = 0;
    return;
  }
  if (how != LATER && ++log->failures == FAILURES_SAID && how != FAILED)
    run->options->say(log->path, "the process that is to do it dies");
  const uint64_t most_ns = how == LATER ? RETRY_MAX_NS : FAILED_MAX_NS;
  log->retry_after_ns = log->retry_after_ns ? 2 * log->retry_after_ns : RETRY_NS;
  if (log->retry_after_ns > most_ns)
    log->retry_after_ns = most_ns;
  log->retry_at_ns = sl_clock_ns(CLOCK_MONOTONIC) + log->retry_after_ns;
}

/* Looks at it and does what is due. Returns whether it fills fast; *over: it has ended. */
static bool log_tend(struct run *run, struct trimmed *log, bool *over) {
  uint64_t bytes, changed_ns;
  int status;
  *over = true;
  if (log->worker && waitpid(log->worker, &status, WNOHANG) == log->worker)
    worker_ended(run, log, status);
  if (!sl_log_size(log->path, &bytes, &changed_ns))
    return false;
  const uint64_t now = sl_clock_ns(CLOCK_MONOTONIC);
  const bool fast = bytes > log->bytes + log->limit.bytes / FAST_PART;
  if (bytes != log->bytes || changed_ns != log->changed_ns)
    log->seen_ns = now;
  log->bytes = bytes;
  log->changed_ns = changed_ns;
  const bool near_limit = sl_log_is_near_limit(bytes, log->limit.bytes);
  if (!log->worker && near_limit && now >= log->retry_at_ns)
    worker_start(run, log);
  *over = !log->worker && is_over(log, now - log->seen_ns);
  return fast || log->worker || (near_limit && log->retry_after_ns < RETRY_MAX_NS);
}

/* ---- all of them ---- */

/* Workers may be stopped at any moment; what they leave then is a file that nobody reads. */
static void end(struct run *run) {
  for (size_t i = 0; i < run->count; i++) {
    struct trimmed *log = &run->logs[i];
    if (log->worker) {
      kill(log->worker, SIGKILL);
      waitpid(log->worker, NULL, 0);
      sl_log_trim_clean(log->path);
    }
    free(log->path);
  }
  free(run->logs);
}

static bool goes_on(const struct run *run, bool all_over) {
  const struct sl_trim_options *options = run->options;
  if (*options->stop)
    return false;
  return !all_over || (options->parent && getppid() == options->parent);
}

int sl_run_trim(const struct sl_trim_options *options) {
  struct run run = {.options = options};
  uint64_t next_visit_ns = 0, pause_ns = LOOK_NS;
  bool all_over = false;
  int r = 0;
  gethostname(run.host, sizeof run.host - 1);
  while (r == 0 && goes_on(&run, all_over)) {
    if (sl_clock_ns(CLOCK_MONOTONIC) >= next_visit_ns) {
      r = visit(&run);
      next_visit_ns = sl_clock_ns(CLOCK_MONOTONIC) + VISIT_NS;
    }
    bool fast = false, any = false;
    all_over = true;
    for (size_t i = 0; i < run.count; i++) {
      if (run.logs[i].kind != OURS)
        continue;
      bool over;
      fast |= log_tend(&run, &run.logs[i], &over);
      all_over &= over;
      any = true;
    }
    all_over &= any;
    pause_ns = fast ? LOOK_NS : 2 * pause_ns < LOOK_MAX_NS ? 2 * pause_ns : LOOK_MAX_NS;
    const struct timespec pause = {.tv_nsec = (long)pause_ns};
    ppoll(NULL, 0, &pause, options->while_waiting);
  }
  end(&run);
  return r;
}

int sl_run_trim_once(const char *directory, void (*say)(const char *directory, const char *text)) {
  const struct sl_trim_options options = {.directory = directory, .say = say};
  struct run run = {.options = &options};
  gethostname(run.host, sizeof run.host - 1);
  int r = visit(&run);
  for (size_t i = 0; i < run.count; i++) {
    const struct trimmed *log = &run.logs[i];
    struct sl_error error = {0};
    if (log->kind != OURS || !sl_log_is_near_limit(log->bytes, log->limit.bytes))
      continue;
    int trimmed = sl_log_trim(log->path, log->limit.bytes, &error);
    if (trimmed < 0 && trimmed != -EAGAIN) {
      say(log->path, error.text);
      r = r < 0 ? r : trimmed;
    }
  }
  end(&run);
  return r;
}

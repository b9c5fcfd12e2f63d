/*
 * All ranks are read up to the same instant, a little in the past, by the clock of each one's host as far as that
 * shows: so what they are asked is of one moment.
 */
#include "live_run.h"

#include "storage/run/jobs.h"
#include "storage/run/run_directory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FUTURE_NS 2000000000u /* beyond what may be recorded between the look at the clock and the one at the log */
#define RETRY_NS 5000000000u  /* a process directory without a readable segment is tried again after that */

struct sl_live_run *sl_live_run_new(const char *directory, const char *attempt) {
  struct sl_live_run *run = calloc(1, sizeof *run);
  if (run && (!(run->directory = strdup(directory)) || (attempt && !(run->attempt = strdup(attempt)))))
    return sl_live_run_free(run);
  return run;
}

static void process_close(struct sl_live_process *process) {
  process->live = sl_live_rank_close(process->live);
  free(process->path);
}

struct sl_live_run *sl_live_run_free(struct sl_live_run *run) {
  if (!run)
    return NULL;
  for (size_t i = 0; i < run->count; i++)
    process_close(&run->processes[i]);
  free(run->processes);
  free(run->listing);
  free(run->directory);
  free(run->attempt);
  run->rules = sl_user_rules_free(run->rules);
  free(run);
  return NULL;
}

/* ---- which processes ---- */

/* All process directories, one a line; *count of them. NULL: r says why. */
static char *list_processes(const char *directory, size_t *count, int *r) {
  char **paths = NULL;
  const int found = sl_run_paths(directory, &paths);
  size_t bytes = 1;
  *r = found < 0 ? found : 0;
  *count = found < 0 ? 0 : (size_t)found;
  for (int i = 0; i < found; i++)
    bytes += strlen(paths[i]) + 1;
  char *text = *r == 0 ? calloc(1, bytes) : NULL;
  if (*r == 0 && !text)
    *r = -ENOMEM;
  char *end = text;
  for (int i = 0; text && i < found; i++)
    end = stpcpy(stpcpy(end, paths[i]), "\n");
  sl_paths_free(paths, found);
  return text;
}

/* Takes the process over from where it is watched already, else begins with it. */
static int process_take(struct sl_live_run *run, const struct sl_run_process *found, struct sl_live_process *out,
                        struct sl_error *error) {
  *out = (struct sl_live_process){.rank = found->rank,
                                  .start_ns = found->start_ns,
                                  .world_size = found->world_size,
                                  .is_rehearsal = found->identity.is_rehearsal};
  for (size_t i = 0; i < run->count; i++)
    if (run->processes[i].path && strcmp(run->processes[i].path, found->path) == 0) {
      *out = run->processes[i];
      run->processes[i] = (struct sl_live_process){0};
      return 0;
    }
  out->path = strdup(found->path);
  return out->path ? 0 : sl_no_memory(error);
}

/* Those in the directory; of a process's own, as that asks about itself, those of the run that it is a part of. */
static int rules_find(struct sl_live_run *run, const struct sl_run *found, struct sl_error *error) {
  char *parent = NULL;
  int r = sl_user_rules_kept(run->directory, &run->rules, error);
  if (r == 0 && !run->rules && found->count == 1 && strcmp(found->processes[0].path, run->directory) == 0) {
    r = asprintf(&parent, "%s/..", run->directory) < 0 ? sl_no_memory(error)
                                                       : sl_user_rules_kept(parent, &run->rules, error);
    free(parent);
  }
  run->rules_read = r == 0;
  return r;
}

/* Which processes are the run is the same question as for the ledger. */
static int processes_find(struct sl_live_run *run, struct sl_error *error) {
  struct sl_run found = {0};
  struct sl_live_process *processes = NULL;
  size_t count = 0;
  const char *directory = run->directory;
  int r = sl_run_open(&directory, 1, run->attempt, &found, &run->note, error);
  if (r == 0 && found.processes[0].is_snapshot)
    r = sl_error_set(error, -EINVAL, "%s is a memory snapshot, which does not grow; ask 'shardledger peaks %s'",
                     directory, directory);
  if (r < 0)
    goto finish;
  if (!run->rules_read)
    r = rules_find(run, &found, error);
  processes = calloc(found.count, sizeof *processes);
  if (r == 0 && !processes)
    r = sl_no_memory(error);
  for (; count < found.count && r == 0; count++)
    r = process_take(run, &found.processes[count], &processes[count], error);
  if (r < 0 && count)
    process_close(&processes[--count]);
  for (size_t i = 0; i < run->count; i++)
    process_close(&run->processes[i]);
  free(run->processes);
  run->processes = processes;
  run->count = count;
finish:
  sl_run_close(&found);
  return r;
}

/* From this one on they are to be tried at the next look. */
static void processes_forget(struct sl_live_run *run, size_t from) {
  while (run->count > from)
    process_close(&run->processes[--run->count]);
  free(run->listing);
  run->listing = NULL;
}

int sl_live_run_look(struct sl_live_run *run, uint64_t now_ns, struct sl_error *error) {
  size_t count = 0;
  int r = 0;
  error->text[0] = 0;
  char *listing = list_processes(run->directory, &count, &r);
  if (r < 0)
    return r == -ENOMEM ? sl_no_memory(error) : sl_error_set(error, r, "%s: %s", run->directory, strerror(-r));
  bool changed = !run->listing || strcmp(listing, run->listing) != 0;
  bool incomplete = run->count < count && now_ns - run->opened_ns > RETRY_NS;
  free(run->listing);
  run->listing = listing;
  if (changed || incomplete) {
    run->opened_ns = now_ns;
    r = processes_find(run, error);
    if (r < 0) {
      processes_forget(run, run->count);
      return r;
    }
  }
  for (size_t i = 0; i < run->count && r == 0; i++) {
    struct sl_live_process *process = &run->processes[i];
    if (process->live)
      r = sl_live_rank_look(process->live, error);
    else if ((r = sl_live_rank_open(process->path, run->rules, false, &process->live, error)) < 0)
      processes_forget(run, i);
  }
  return r;
}

/*
 * What the threads do is held back for a moment, by our clock. A host whose clock is ahead would be held back for long:
 * an event of the future shows that, and then this log is read to its end once, to see by how much.
 */
static int process_read(struct sl_live_process *process, uint64_t now_ns, uint64_t events, struct sl_error *error) {
  const uint64_t there_ns = now_ns + process->ahead_ns;
  int r = sl_live_rank_read(process->live, there_ns - SL_LIVE_DELAY_NS, events, error);
  if (r == 0 && sl_live_rank_held(process->live) > there_ns + FUTURE_NS) {
    r = sl_live_rank_read(process->live, UINT64_MAX, UINT64_MAX, error);
    process->ahead_ns = sl_live_rank_last_ns(process->live) - now_ns;
  }
  if (r < 0)
    return r;
  uint64_t last_ns = sl_live_rank_last_ns(process->live);
  if (last_ns != process->last_ns)
    process->news_ns = process->last_ns ? now_ns : last_ns;
  process->last_ns = last_ns;
  process->more = r > 0;
  return r;
}

static int process_settle(struct sl_live_process *process, struct sl_error *error) {
  return sl_live_rank_settle(process->live) < 0 ? sl_no_memory(error) : 0;
}

int sl_live_run_read(struct sl_live_run *run, uint64_t now_ns, uint64_t events, struct sl_error *error) {
  bool more = false;
  for (size_t i = 0; i < run->count; i++) {
    struct sl_live_process *process = &run->processes[i];
    int r = process_read(process, now_ns, events, error);
    more |= r > 0;
    if (r == 0 && sl_live_rank_ended(process->live) && !sl_live_rank_held(process->live))
      r = process_settle(process, error);
    if (r < 0)
      return r;
  }
  return more;
}

struct reading {
  struct sl_live_run *run;
  uint64_t now_ns;
  bool figures_only;
  pthread_mutex_t mutex; /* for what follows */
  size_t next;           /* process that nobody has taken yet */
  size_t failed_at;      /* the lowest that failed */
  int r;
  struct sl_error *error;
};

static bool process_take_next(struct reading *reading, size_t *at) {
  pthread_mutex_lock(&reading->mutex);
  *at = reading->next;
  const bool taken = reading->r == 0 && *at < reading->run->count;
  reading->next += taken;
  pthread_mutex_unlock(&reading->mutex);
  return taken;
}

static void reading_failed(struct reading *reading, size_t at, int r, const struct sl_error *error) {
  pthread_mutex_lock(&reading->mutex);
  if (reading->r == 0 || at < reading->failed_at) {
    reading->r = r;
    reading->failed_at = at;
    *reading->error = *error;
  }
  pthread_mutex_unlock(&reading->mutex);
}

static int process_read_once(const struct sl_live_run *run, struct sl_live_process *process, uint64_t now_ns,
                             bool figures_only, struct sl_error *error) {
  int r = sl_live_rank_open(process->path, run->rules, figures_only, &process->live, error);
  if (r == 0)
    r = process_read(process, now_ns, UINT64_MAX, error);
  return r < 0 ? r : process_settle(process, error);
}

static void processes_read(void *context) {
  struct reading *reading = context;
  for (size_t at; process_take_next(reading, &at);) {
    struct sl_live_process *process = &reading->run->processes[at];
    struct sl_error error = {{0}};
    int r = process_read_once(reading->run, process, reading->now_ns, reading->figures_only, &error);
    if (r < 0)
      reading_failed(reading, at, r, &error);
  }
}

int sl_live_run_read_once(struct sl_live_run *run, uint64_t now_ns, size_t whole, struct sl_error *error) {
  struct reading reading = {.run = run, .now_ns = now_ns, .mutex = PTHREAD_MUTEX_INITIALIZER, .error = error};
  const int r = processes_find(run, error);
  if (r < 0)
    return r;
  reading.figures_only = run->count > whole;
  sl_jobs_run(sl_job_count(0, run->count), processes_read, &reading);
  return reading.r;
}

int sl_live_run_detail(struct sl_live_run *run, size_t process, uint64_t now_ns, struct sl_error *error) {
  struct sl_live_process *detail = &run->processes[process];
  detail->live = sl_live_rank_close(detail->live);
  return process_read_once(run, detail, now_ns, false, error);
}

/* One lock for who takes which rank and whose turn it is; a rank's work itself shares nothing with another's. */
#include "rank_jobs.h"

#include "jobs.h"
#include "storage/log/log_reader.h"
#include "storage/rank/rank_ledger.h"
#include "storage/snapshot/snapshot_log.h"

#include <pthread.h>
#include <stdbool.h>

/* From so many ranks on they share rows. A small job's ledger takes little room, and has plain tables. */
enum { SHARING_RANKS = 16 };

struct jobs {
  struct sl_run *run;
  struct sl_ledger_writer *ledger; /* of the thread whose rank's turn it is */
  const struct sl_ledger_options *options;
  uint64_t total;        /* bytes of log */
  pthread_mutex_t mutex; /* for what follows */
  pthread_cond_t turned;
  size_t next; /* rank that nobody has taken yet; by position in the run, as the next one */
  size_t turn; /* rank whose rows come next */
  uint64_t done;
  int r; /* of the first rank that failed */
  struct sl_error *error;
};

struct job { /* a rank in the making */
  struct jobs *jobs;
  size_t at;
  uint64_t done; /* bytes of its log that are in jobs->done */
};

static void progress_add(void *context, uint64_t read, uint64_t total) {
  struct job *job = context;
  struct jobs *jobs = job->jobs;
  pthread_mutex_lock(&jobs->mutex);
  jobs->done += read - job->done;
  job->done = read;
  if (jobs->options->progress && jobs->r == 0)
    jobs->options->progress(jobs->options->progress_context, jobs->done, total);
  pthread_mutex_unlock(&jobs->mutex);
}

/* Takes a rank. *is_turn: all before it are in the ledger. */
static bool rank_take(struct jobs *jobs, size_t *at, bool *is_turn) {
  pthread_mutex_lock(&jobs->mutex);
  bool taken = jobs->r == 0 && jobs->next < jobs->run->count;
  if (taken)
    *at = jobs->next++;
  *is_turn = taken && *at == jobs->turn;
  pthread_mutex_unlock(&jobs->mutex);
  return taken;
}

/* 0, or what a rank before this one failed with. */
static int turn_wait(struct jobs *jobs, size_t at) {
  pthread_mutex_lock(&jobs->mutex);
  while (jobs->turn < at)
    pthread_cond_wait(&jobs->turned, &jobs->mutex);
  int r = jobs->r;
  pthread_mutex_unlock(&jobs->mutex);
  return r;
}

static void turn_end(struct jobs *jobs, int r, const struct sl_error *error) {
  pthread_mutex_lock(&jobs->mutex);
  if (jobs->r == 0 && r < 0) {
    jobs->r = r;
    *jobs->error = *error;
  }
  jobs->turn++;
  pthread_cond_broadcast(&jobs->turned);
  pthread_mutex_unlock(&jobs->mutex);
}

static int rank_write(struct job *job, struct sl_ledger_writer *writer, struct sl_error *error) {
  struct sl_run_process *process = &job->jobs->run->processes[job->at];
  struct sl_ledger_options options = *job->jobs->options;
  options.progress = progress_add;
  options.progress_context = job;
  struct sl_log *log = NULL;
  int r = sl_recording_open(process->path, &log, error);
  if (r == 0)
    r = sl_ledger_writer_begin(writer, process->rank, error);
  if (r == 0)
    r = sl_rank_ledger_build(log, writer, &options, job->jobs->total, error);
  if (r == 0)
    r = sl_ledger_writer_commit(writer, error);
  log = sl_log_close(log);
  if (r == 0)
    progress_add(job, process->bytes, job->jobs->total);
  return r;
}

static void rank_make(struct jobs *jobs, size_t at, bool is_turn) {
  struct job job = {jobs, at, 0};
  struct sl_error error = {{0}};
  struct sl_ledger_writer *aside = NULL;
  int r;
  if (is_turn) {
    r = rank_write(&job, jobs->ledger, &error);
    if (r == 0)
      r = sl_ledger_writer_share(jobs->ledger, jobs->ledger, &error);
  } else {
    r = sl_ledger_writer_open_aside(&aside, &error);
    if (r == 0 && jobs->run->count >= SHARING_RANKS)
      sl_ledger_writer_compare(aside);
    if (r == 0)
      r = rank_write(&job, aside, &error);
    if (turn_wait(jobs, at) == 0 && r == 0) {
      r = sl_ledger_writer_share(aside, jobs->ledger, &error);
      if (r == 0)
        r = sl_ledger_writer_move(aside, jobs->ledger, &error);
    }
    aside = sl_ledger_writer_close(aside);
  }
  turn_end(jobs, r, &error);
}

static void ranks_make(void *context) {
  struct jobs *jobs = context;
  size_t at;
  bool is_turn;
  while (rank_take(jobs, &at, &is_turn))
    rank_make(jobs, at, is_turn);
}

int sl_rank_jobs_run(struct sl_run *run, struct sl_ledger_writer *ledger, const struct sl_ledger_options *options,
                     struct sl_error *error) {
  struct jobs jobs = {.run = run,
                      .ledger = ledger,
                      .options = options,
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .turned = PTHREAD_COND_INITIALIZER,
                      .error = error};
  if (run->count >= SHARING_RANKS)
    sl_ledger_writer_compare(ledger);
  for (size_t i = 0; i < run->count; i++)
    jobs.total += run->processes[i].bytes;
  sl_jobs_run(sl_job_count(options->jobs, run->count), ranks_make, &jobs);
  return jobs.r;
}

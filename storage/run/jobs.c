/* Runs pieces of work on several threads. */
#include "jobs.h"

#include "storage/ledger_options.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static size_t processor_count(void) {
  cpu_set_t set;
  long online;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return (size_t)CPU_COUNT(&set);
  online = sysconf(_SC_NPROCESSORS_ONLN); /* More of them than fit into a set. */
  return online > 0 ? (size_t)online : 1;
}

size_t sl_job_count(size_t asked, size_t pieces) {
  size_t count = asked;
  if (count == 0) {
    count = processor_count();
    if (count > SL_LEDGER_JOBS_MAX)
      count = SL_LEDGER_JOBS_MAX;
  }
  return count < pieces ? count : pieces;
}

struct job {
  void (*work)(void *context);
  void *context;
};

static void *thread_run(void *context) {
  const struct job *job = context;
  job->work(job->context);
  return NULL;
}

void sl_jobs_run(size_t count, void (*work)(void *context), void *context) {
  struct job job = {work, context};
  pthread_t *threads = calloc(count ? count : 1, sizeof *threads);
  size_t started = 0;
  while (threads && started + 1 < count && pthread_create(&threads[started], NULL, thread_run, &job) == 0)
    started++;
  work(context);
  while (started > 0)
    pthread_join(threads[--started], NULL);
  free(threads);
}

/* A process id names the latest process that began with it: earlier ones have ended. */
#include "run_attendants.h"

#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIVE_NS 2000000000u /* a process that goes on records every second */

struct known {
  int64_t pid;
  size_t process; /* the latest with this id on any host */
  UT_hash_handle hh;
};

struct search {
  struct sl_run *run;
  struct known *by_pid;
  size_t *before;     /* by process: the one with the same id that was entered before it; SIZE_MAX: none */
  signed char *steps; /* by process: whether it has some; -1: not looked up */
  struct sl_error *error;
};

static int pid_enter(struct search *search, size_t process) {
  const int64_t pid = search->run->processes[process].identity.pid;
  struct known *known;
  search->before[process] = SIZE_MAX;
  HASH_FIND(hh, search->by_pid, &pid, sizeof pid, known);
  if (!known) {
    known = calloc(1, sizeof *known);
    if (!known)
      return sl_no_memory(search->error);
    *known = (struct known){.pid = pid, .process = SIZE_MAX};
    SL_HASH_ADD(search->by_pid, pid, known);
    if (!known)
      return sl_no_memory(search->error);
  }
  search->before[process] = known->process;
  known->process = process;
  return 0;
}

/* The latest process with this id on the host, of those that began before; SIZE_MAX: none was recorded. */
static size_t pid_find(const struct search *search, int64_t pid, const char *host) {
  const struct known *known;
  HASH_FIND(hh, search->by_pid, &pid, sizeof pid, known);
  size_t at = known ? known->process : SIZE_MAX;
  while (at != SIZE_MAX && strcmp(search->run->processes[at].identity.host, host) != 0)
    at = search->before[at];
  return at;
}

/* 1, 0 or a negative errno. */
static int has_steps(struct search *search, size_t process) {
  if (search->steps[process] < 0) {
    const int r = sl_run_has_steps(search->run->processes[process].path, search->error);
    if (r < 0)
      return r;
    search->steps[process] = (signed char)r;
  }
  return search->steps[process];
}

static int pair_look(struct search *search, size_t ancestor, size_t process) {
  struct sl_run_process *one = &search->run->processes[ancestor], *other = &search->run->processes[process];
  uint64_t end_ns = 0;
  if (one->rank != other->rank || strcmp(one->identity.family, other->identity.family) != 0)
    return 0;
  int r = sl_run_process_end(one->path, &end_ns, search->error);
  if (r < 0 || end_ns + ALIVE_NS < other->start_ns)
    return r; /* then its id has become another's, which was not recorded */
  const int ones = has_steps(search, ancestor), others = ones < 0 ? ones : has_steps(search, process);
  if (others < 0)
    return others;
  one->attends |= !ones && others;
  other->attends |= ones && !others;
  return 0;
}

static int process_look(struct search *search, size_t process) {
  const struct sl_run_identity *own = &search->run->processes[process].identity;
  int r = 0;
  char *end = own->ancestors;
  for (const char *at = end; *at && r == 0; at = end) {
    const int64_t pid = strtoll(at, &end, 10);
    if (end == at)
      break;
    const size_t ancestor = pid_find(search, pid, own->host);
    r = ancestor == SIZE_MAX ? 0 : pair_look(search, ancestor, process);
  }
  return r < 0 ? r : pid_enter(search, process);
}

int sl_run_find_attendants(struct sl_run *run, struct sl_error *error) {
  struct search search = {
      .run = run, .before = calloc(run->count, sizeof *search.before), .steps = malloc(run->count), .error = error};
  int r = search.before && search.steps ? 0 : sl_no_memory(error);
  if (r == 0)
    memset(search.steps, -1, run->count);
  for (size_t i = 0; i < run->count && r == 0; i++)
    r = process_look(&search, i);
  struct known *known, *next;
  HASH_ITER(hh, search.by_pid, known, next) {
    HASH_DEL(search.by_pid, known);
    free(known);
  }
  free(search.before);
  free(search.steps);
  return r;
}

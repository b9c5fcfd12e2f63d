/* A process id names the latest process that began with it: earlier ones have ended. */
#include "run_attendants.h"

#include "storage/hash_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACE_CHARS = 320 }; /* a host's name has 255 at most */

struct known {
  char place[PLACE_CHARS]; /* "4711 host" */
  size_t process;          /* the latest there */
  UT_hash_handle hh;
};

struct search {
  struct sl_run *run;
  struct known *by_place;
  signed char *steps; /* by process: whether it has some; -1: not looked up */
  struct sl_error *error;
};

/* The latest process with this id on this host, of those that were entered; NULL: none. */
static struct known *known_find(const struct search *search, int64_t pid, const char *host) {
  struct known *known;
  char place[PLACE_CHARS];
  snprintf(place, sizeof place, "%" PRId64 " %s", pid, host);
  HASH_FIND_STR(search->by_place, place, known);
  return known;
}

static int known_enter(struct search *search, size_t process) {
  const struct sl_run_identity *own = &search->run->processes[process].identity;
  struct known *known = known_find(search, own->pid, own->host);
  if (!known) {
    known = calloc(1, sizeof *known);
    if (!known)
      return sl_no_memory(search->error);
    snprintf(known->place, sizeof known->place, "%" PRId64 " %s", own->pid, own->host);
    HASH_ADD_STR(search->by_place, place, known);
    if (SL_HASH_FAILED(known)) {
      free(known);
      return sl_no_memory(search->error);
    }
  }
  known->process = process;
  return 0;
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
  if (r < 0 || end_ns + SL_ALIVE_NS < other->start_ns)
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
    const struct known *ancestor = known_find(search, pid, own->host);
    r = ancestor ? pair_look(search, ancestor->process, process) : 0;
  }
  return r < 0 ? r : known_enter(search, process);
}

int sl_run_find_attendants(struct sl_run *run, struct sl_error *error) {
  struct search search = {.run = run, .steps = malloc(run->count), .error = error};
  int r = search.steps ? 0 : sl_no_memory(error);
  if (r == 0)
    memset(search.steps, -1, run->count);
  for (size_t i = 0; i < run->count && r == 0; i++)
    r = process_look(&search, i);
  SL_HASH_FREE(search.by_place);
  free(search.steps);
  return r;
}

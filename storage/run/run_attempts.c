/* Newer processes are compared with older ones only, so what is found does not change when another run begins later. */
#include "run_attempts.h"

#include "plugin/format/clock.h"
#include "run_attendants.h"
#include "storage/grow.h"
#include "storage/hash_table.h"
#include "storage/rank_ranges.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What is looked up of a process only where it matters. */
struct evidence {
  size_t family, host; /* numbers: the same for the same text */
  uint64_t world, end_ns;
  bool has_world, has_end; /* it was looked up */
  size_t before,
      before_on_host; /* the attempt's member that was sorted before it, also of the same host; SIZE_MAX: none */
};

/* An attempt while it is made: all its members are of one family, and no two are of different worlds. */
struct group {
  size_t family, newest; /* newest: the member that was sorted last */
  uint64_t world;        /* 0: of no member known */
  bool ends_known;       /* of all members, and when the last of them began and ended */
  uint64_t last_start_ns, last_end_ns;
};

struct sorting {
  struct sl_run *run;
  struct evidence *evidence; /* by process */
  bool *doubted;             /* by family: its communicators have been looked up */
  bool *shares_parent;       /* by family: processes of a host have the same parent, so that is the launcher */
  struct group *groups;      /* by attempt; with room for one a process */
  struct entry *by_rank;     /* a member, by attempt and rank */
  struct entry *by_host;     /* the newest member, by attempt and host */
  bool again;                /* more is known than when the first were sorted */
  uint64_t now_ns;
  struct sl_error *error;
};

/* How a process fits to an attempt that has been begun. */
struct fit {
  bool possible;
  bool same_world, same_launcher;
};

static int by_start(const void *a, const void *b) {
  const struct sl_run_process *x = a, *y = b;
  return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns ? 1 : strcmp(x->path, y->path);
}

static int by_attempt(const void *a, const void *b) {
  const struct sl_run_process *x = a, *y = b;
  if (x->attempt != y->attempt)
    return x->attempt < y->attempt ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* ---- what is looked up by a number, or by a text ---- */

struct entry {
  uint64_t key;
  const char *text; /* instead of a key, where it is one */
  size_t process;
  UT_hash_handle hh;
};

/* The process of a key; SIZE_MAX: none. */
static size_t entry_find(struct entry *table, uint64_t key) {
  struct entry *entry;
  HASH_FIND(hh, table, &key, sizeof key, entry);
  return entry ? entry->process : SIZE_MAX;
}

static int entry_put(struct entry **table, uint64_t key, size_t process) {
  struct entry *entry;
  SL_HASH_FIND_OR_ADD(*table, key, key, entry);
  if (!entry)
    return -ENOMEM;
  entry->process = process;
  return 0;
}

/* *first: the first process with this text, which is this one where it is new. 0 or -ENOMEM. */
static int text_first(struct entry **table, const char *text, size_t process, size_t *first) {
  struct entry *entry;
  HASH_FIND(hh, *table, text, strlen(text), entry);
  if (!entry) {
    entry = calloc(1, sizeof *entry);
    if (!entry)
      return -ENOMEM;
    *entry = (struct entry){.text = text, .process = process};
    HASH_ADD_KEYPTR(hh, *table, entry->text, strlen(entry->text), entry);
    if (SL_HASH_FAILED(entry)) {
      free(entry);
      return -ENOMEM;
    }
  }
  *first = entry->process;
  return 0;
}

/* Of two numbers of things, each of which there are fewer of than processes. */
static uint64_t pair_of(size_t one, size_t other) {
  return (uint64_t)one << 32 | other;
}

/* Numbers families and hosts, and finds where processes of a host have the same parent. 0 or -ENOMEM. */
static int evidence_number(struct sorting *s) {
  struct entry *families = NULL, *hosts = NULL, *places = NULL, *parents = NULL;
  int r = 0;
  for (size_t i = 0; i < s->run->count && r == 0; i++) {
    const struct sl_run_identity *own = &s->run->processes[i].identity;
    struct evidence *evidence = &s->evidence[i];
    r = text_first(&families, own->family, i, &evidence->family);
    if (r == 0)
      r = text_first(&hosts, own->host, i, &evidence->host);
    if (r < 0 || own->parent_pid < 0)
      continue;
    /* A family's place on a host, in one number; then this and the parent. */
    const uint64_t place = pair_of(evidence->family, evidence->host);
    size_t at = entry_find(places, place);
    if (at == SIZE_MAX)
      r = entry_put(&places, place, at = i);
    const uint64_t key = pair_of(at, (uint32_t)own->parent_pid);
    const size_t other = entry_find(parents, key);
    if (other == SIZE_MAX && r == 0)
      r = entry_put(&parents, key, i);
    else if (other != SIZE_MAX && s->run->processes[other].rank != s->run->processes[i].rank)
      s->shares_parent[evidence->family] = true;
  }
  SL_HASH_FREE(families);
  SL_HASH_FREE(hosts);
  SL_HASH_FREE(places);
  SL_HASH_FREE(parents);
  return r;
}

static int world_look(struct sorting *s, size_t at) {
  struct evidence *evidence = &s->evidence[at];
  if (evidence->has_world)
    return 0;
  evidence->has_world = true;
  return sl_run_world_communicator(s->run->processes[at].path, s->run->processes[at].world_size, &evidence->world,
                                   s->error);
}

/* The family's communicators are looked up once something of it is in doubt; ids that launchers gave leave none. */
static int doubt(struct sorting *s, size_t family) {
  if (s->doubted[family] || s->run->processes[family].identity.is_told)
    return 0;
  s->doubted[family] = s->again = true;
  for (size_t i = 0; i < s->run->count; i++) {
    const int r = s->evidence[i].family == family ? world_look(s, i) : 0;
    if (r < 0)
      return r;
  }
  return 0;
}

/* 1: it has ended before that instant, 0: not, or a negative errno. */
static int has_ended(struct sorting *s, size_t at, uint64_t start_ns) {
  struct evidence *evidence = &s->evidence[at];
  if (s->run->processes[at].start_ns >= start_ns)
    return 0;
  if (!evidence->has_end) {
    const int r = sl_run_process_end(s->run->processes[at].path, &evidence->end_ns, s->error);
    if (r < 0)
      return r;
    evidence->has_end = true;
  }
  return evidence->end_ns < start_ns && evidence->end_ns + SL_ALIVE_NS < s->now_ns;
}

/* Whether all of the attempt had ended when the process began: 1, 0 or a negative errno. */
static int is_over(struct sorting *s, size_t attempt, uint64_t start_ns) {
  struct group *group = &s->groups[attempt];
  if (!group->ends_known) {
    group->last_start_ns = group->last_end_ns = 0;
    for (size_t i = group->newest; i != SIZE_MAX; i = s->evidence[i].before) {
      const int r = has_ended(s, i, start_ns);
      if (r <= 0)
        return r;
      if (s->run->processes[i].start_ns > group->last_start_ns)
        group->last_start_ns = s->run->processes[i].start_ns;
      if (s->evidence[i].end_ns > group->last_end_ns)
        group->last_end_ns = s->evidence[i].end_ns;
    }
    group->ends_known = true;
  }
  return group->last_start_ns < start_ns && group->last_end_ns < start_ns &&
         group->last_end_ns + SL_ALIVE_NS < s->now_ns;
}

/* What the members of its host say of the launcher. false: the process is of another attempt. */
static bool fits_on_host(const struct sorting *s, size_t at, size_t first, struct fit *fit) {
  const struct sl_run_identity *own = &s->run->processes[at].identity;
  bool fits = true;
  for (size_t i = first; i != SIZE_MAX; i = s->evidence[i].before_on_host) {
    const struct sl_run_identity *its = &s->run->processes[i].identity;
    /* A restart leaves no rank of its host running. */
    fits &= its->restarts == own->restarts || own->is_rehearsal;
    fit->same_launcher |= its->parent_pid == own->parent_pid;
  }
  return fits && (fit->same_launcher || own->joins_launchers || !s->shares_parent[s->evidence[at].family]);
}

/* Whether the process, which is not sorted yet, fits to the attempt. 0 or a negative errno. */
static int fit_find(struct sorting *s, size_t at, size_t attempt, struct fit *fit) {
  const struct sl_run_process *process = &s->run->processes[at];
  const struct evidence *own = &s->evidence[at];
  const struct group *group = &s->groups[attempt];
  int r = 0;
  *fit = (struct fit){0};
  if (group->family != own->family || s->run->attempts[attempt].attends != process->attends)
    return 0;
  const size_t same_rank = entry_find(s->by_rank, pair_of(attempt, process->rank));
  if (same_rank != SIZE_MAX) {
    r = s->evidence[same_rank].host == own->host ? has_ended(s, same_rank, process->start_ns) : 0;
    return r == 0 ? doubt(s, own->family) : r < 0 ? r : 0; /* two at the same time: ranks of both come as they like */
  }
  const size_t on_host = entry_find(s->by_host, pair_of(attempt, own->host));
  const bool fits = on_host == SIZE_MAX || fits_on_host(s, at, on_host, fit);
  fit->same_world = own->world && own->world == group->world;
  fit->possible = fits && !(own->world && group->world && own->world != group->world);
  if (!fit->possible || fit->same_world || process->identity.is_rehearsal)
    return 0;
  /* Clocks of different hosts can't tell what a launcher's id tells. */
  if (process->identity.is_told && on_host == SIZE_MAX)
    return 0;
  r = is_over(s, attempt, process->start_ns);
  if (r <= 0)
    return r;
  fit->possible = false;
  if (s->doubted[own->family] || process->identity.is_told)
    return 0;
  /* Or one host's clock is behind. */
  return doubt(s, own->family); /* and all are sorted again, with what that showed */
}

/* The process is of this attempt. 0 or -ENOMEM. */
static int member_add(struct sorting *s, size_t at, size_t attempt) {
  struct evidence *own = &s->evidence[at];
  struct group *group = &s->groups[attempt];
  const uint64_t host = pair_of(attempt, own->host);
  own->before = group->newest;
  own->before_on_host = entry_find(s->by_host, host);
  group->newest = at;
  group->ends_known = false;
  group->world = group->world ? group->world : own->world;
  s->run->processes[at].attempt = attempt;
  const int r = entry_put(&s->by_host, host, at);
  return r < 0 ? r : entry_put(&s->by_rank, pair_of(attempt, s->run->processes[at].rank), at);
}

static void attempts_forget(struct sl_run *run) {
  while (run->attempt_count > 0)
    sl_attempt_free(&run->attempts[--run->attempt_count]);
}

static int attempt_add(struct sl_run *run, const struct sl_run_process *process) {
  struct sl_attempt *added = SL_LIST_ADD(run->attempts, run->attempt_count);
  if (!added)
    return -ENOMEM;
  *added = (struct sl_attempt){.number = run->attempt_count,
                               .start_ns = process->start_ns,
                               .world_size = process->world_size,
                               .told_by = process->attends            ? SL_TOLD_parent
                                          : process->identity.is_told ? SL_TOLD_launcher
                                                                      : SL_TOLD_time,
                               .attends = process->attends,
                               .name = strdup(process->identity.name)};
  return added->name ? 0 : -ENOMEM;
}

static int process_sort(struct sorting *s, size_t at) {
  struct sl_run *run = s->run;
  size_t best = run->attempt_count;
  struct fit best_fit = {0};
  run->processes[at].attempt = SIZE_MAX;
  for (size_t attempt = run->attempt_count; attempt-- > 0;) {
    struct fit fit;
    const int r = fit_find(s, at, attempt, &fit);
    if (r < 0)
      return r;
    /* Of several that it may be of equally, the newest: its start is the nearest. */
    if (fit.possible && (best == run->attempt_count ||
                         2 * fit.same_world + fit.same_launcher > 2 * best_fit.same_world + best_fit.same_launcher)) {
      best = attempt;
      best_fit = fit;
    }
  }
  if (best == run->attempt_count) {
    if (attempt_add(run, &run->processes[at]) < 0)
      return sl_no_memory(s->error);
    s->groups[best] = (struct group){.family = s->evidence[at].family, .newest = SIZE_MAX};
  }
  if (member_add(s, at, best) < 0)
    return sl_no_memory(s->error);
  if (s->evidence[at].world && !run->attempts[best].attends)
    run->attempts[best].told_by = SL_TOLD_communicator;
  return 0;
}

/* What is known of an attempt once all processes are in order. */
static int attempts_finish(struct sl_run *run) {
  size_t at = 0;
  for (size_t i = 0; i < run->attempt_count; i++) {
    struct sl_attempt *attempt = &run->attempts[i];
    struct sl_rank_ranges ranks = {0};
    int r = 0;
    for (attempt->first = at; at < run->count && run->processes[at].attempt == i && r == 0; at++)
      r = sl_rank_ranges_add(&ranks, run->processes[at].rank, run->processes[at].rank);
    attempt->count = at - attempt->first;
    attempt->ranks = r == 0 ? sl_rank_ranges_text(&ranks, 0) : NULL;
    free(ranks.list);
    if (!attempt->ranks)
      return -ENOMEM;
  }
  return 0;
}

int sl_run_sort(struct sl_run *run, struct sl_error *error) {
  int r = 0;
  struct sorting s = {.run = run,
                      .evidence = calloc(run->count, sizeof *s.evidence),
                      .doubted = calloc(run->count, sizeof *s.doubted),
                      .shares_parent = calloc(run->count, sizeof *s.shares_parent),
                      .groups = calloc(run->count, sizeof *s.groups),
                      .now_ns = sl_clock_ns(CLOCK_REALTIME),
                      .error = error};
  if (!s.evidence || !s.doubted || !s.shares_parent || !s.groups) {
    r = sl_no_memory(error);
    goto finish;
  }
  qsort(run->processes, run->count, sizeof *run->processes, by_start);
  r = sl_run_find_attendants(run, error);
  if (r < 0)
    goto finish;
  if (evidence_number(&s) < 0) {
    r = sl_no_memory(error);
    goto finish;
  }
  do {
    s.again = false;
    attempts_forget(run);
    SL_HASH_FREE(s.by_rank);
    SL_HASH_FREE(s.by_host);
    for (size_t i = 0; i < run->count && r == 0 && !s.again; i++)
      r = process_sort(&s, i);
  } while (r == 0 && s.again); /* once for each family at most */
  if (r < 0)
    goto finish;
  qsort(run->processes, run->count, sizeof *run->processes, by_attempt);
  if (attempts_finish(run) < 0)
    r = sl_no_memory(error);
finish:
  SL_HASH_FREE(s.by_rank);
  SL_HASH_FREE(s.by_host);
  free(s.groups);
  free(s.evidence);
  free(s.doubted);
  free(s.shares_parent);
  return r;
}

/* ---- for the user ---- */

int sl_run_choose(const struct sl_run *run, const char *directory, const char *word, size_t *out,
                  struct sl_error *error) {
  char *end = NULL;
  *out = run->attempt_count - 1;
  while (*out > 0 && run->attempts[*out].attends)
    --*out;
  if (!word || !*word)
    return 0;
  const unsigned long long number = strtoull(word, &end, 10);
  if (*word >= '0' && *word <= '9' && *end == 0 && number >= 1 && number <= run->attempt_count) {
    *out = (size_t)number - 1;
    return 0;
  }
  for (size_t i = run->attempt_count; i-- > 0;)
    if (sl_run_identity_is(&run->processes[run->attempts[i].first].identity, word)) {
      *out = i;
      return 0;
    }
  if (run->attempt_count == 1)
    return sl_error_set(error, -EINVAL, "%s has one run, and no '%s'; leave --run out", directory, word);
  return sl_error_set(error, -EINVAL, "%s has runs 1 to %zu, and no '%s'; 'shardledger info %s' lists them", directory,
                      run->attempt_count, word, directory);
}

static void ranks_words(const struct sl_attempt *attempt, char *words, size_t size) {
  if (attempt->world_size > 0 && !attempt->attends)
    snprintf(words, size, "%zu of %" PRId64 " ranks", attempt->count, attempt->world_size);
  else
    snprintf(words, size, "%zu process%s", attempt->count, attempt->count == 1 ? "" : "es");
}

enum { ATTEMPT_CHARS = 224 };

/* "run 2 (slurm 4711.0), began 2026-11-27 10:15:01 UTC, 1 of 16 ranks" */
static const char *attempt_words(const struct sl_attempt *attempt, char words[ATTEMPT_CHARS]) {
  char when[40], ranks[64];
  const time_t seconds = (time_t)(attempt->start_ns / 1000000000u);
  struct tm parts;
  if (!gmtime_r(&seconds, &parts) || !strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &parts))
    snprintf(when, sizeof when, "%" PRIu64 " ns", attempt->start_ns);
  ranks_words(attempt, ranks, sizeof ranks);
  snprintf(words, ATTEMPT_CHARS, "run %zu (%.80s%sbegan %s, %s)", attempt->number, attempt->name,
           *attempt->name ? ", " : "", when, ranks);
  return words;
}

void sl_run_note(const struct sl_run *run, const char *directory, size_t directories, struct sl_error *note) {
  const struct sl_attempt *used = &run->attempts[run->chosen], *whole = NULL;
  char words[ATTEMPT_CHARS], more[32] = "", advice[80], beside[48] = "";
  size_t runs = 0, newest = 0;
  bool inferred = false;
  for (size_t i = run->attempt_count; i-- > 0;) {
    const struct sl_attempt *attempt = &run->attempts[i];
    if (attempt->attends)
      continue;
    if (!whole && i != run->chosen && attempt->world_size == (int64_t)attempt->count)
      whole = attempt;
    inferred |= attempt->told_by != SL_TOLD_launcher;
    newest = runs++ ? newest : i;
  }
  if (directories > 1)
    snprintf(more, sizeof more, " and %zu more", directories - 1);
  if (runs < run->attempt_count)
    snprintf(beside, sizeof beside, " and processes beside %s without steps", runs == 1 ? "it" : "them");
  if (whole && (int64_t)used->count < used->world_size)
    snprintf(advice, sizeof advice, "--run %zu shows the last whole one", whole->number);
  else if (run->attempt_count == 2)
    snprintf(advice, sizeof advice, "--run %zu shows the other", 2 - run->chosen);
  else
    snprintf(advice, sizeof advice, "'shardledger info' lists them, --run N shows another");
  sl_error_set(note, 0, "%s%s hold%s %zu run%s%s: %s%s is used; %s%s", directory, more, *more ? "" : "s", runs,
               runs == 1 ? "" : "s", beside, runs > 1 && run->chosen == newest ? "the newest, " : "",
               attempt_words(used, words), advice,
               inferred && runs > 1 ? " (ranks, times and communicators told them apart, as no launcher gave an id)"
                                    : "");
}

void sl_attempt_free(struct sl_attempt *attempt) {
  free(attempt->name);
  free(attempt->ranks);
  *attempt = (struct sl_attempt){0};
}

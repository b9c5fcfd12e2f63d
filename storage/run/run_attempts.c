/* Newer processes are compared with older ones only, so what is found does not change when another run begins later. */
#include "run_attempts.h"

#include "storage/grow.h"
#include "storage/rank_ranges.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIVE_NS 2000000000u /* a process that goes on records every second */

/* What is looked up of a process only where it matters. */
struct evidence {
  size_t family, host; /* numbers: the same for the same text */
  uint64_t world, end_ns;
  bool has_world, has_end; /* it was looked up */
};

struct sorting {
  struct sl_run *run;
  struct evidence *evidence; /* by process */
  bool *doubted;             /* by family: its communicators have been looked up */
  bool *shares_parent;       /* by family: processes of a host have the same parent, so that is the launcher */
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

/* The number of the first process whose text at this offset of its identity is the same. */
static size_t first_with(const struct sl_run *run, size_t at, size_t offset) {
  const char *text = *(char *const *)((const char *)&run->processes[at].identity + offset);
  /* Neighbours in time are mostly of one run. */
  for (size_t i = at; i-- > 0;)
    if (strcmp(*(char *const *)((const char *)&run->processes[i].identity + offset), text) == 0)
      return i;
  return at;
}

static void evidence_number(struct sorting *s) {
  for (size_t i = 0; i < s->run->count; i++) {
    const size_t family = first_with(s->run, i, offsetof(struct sl_run_identity, family));
    const size_t host = first_with(s->run, i, offsetof(struct sl_run_identity, host));
    s->evidence[i].family = family == i ? i : s->evidence[family].family;
    s->evidence[i].host = host == i ? i : s->evidence[host].host;
  }
  for (size_t i = 0; i < s->run->count; i++)
    for (size_t j = i; j-- > 0 && !s->shares_parent[s->evidence[i].family];) {
      const struct sl_run_identity *a = &s->run->processes[i].identity, *b = &s->run->processes[j].identity;
      if (s->evidence[i].family == s->evidence[j].family && s->evidence[i].host == s->evidence[j].host &&
          a->parent_pid >= 0 && a->parent_pid == b->parent_pid &&
          s->run->processes[i].rank != s->run->processes[j].rank)
        s->shares_parent[s->evidence[i].family] = true;
    }
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
  return evidence->end_ns < start_ns && evidence->end_ns + ALIVE_NS < s->now_ns;
}

/* Whether the process, which is not sorted yet, fits to the attempt. 0 or a negative errno. */
static int fit_find(struct sorting *s, size_t at, size_t attempt, struct fit *fit) {
  const struct sl_run_process *process = &s->run->processes[at];
  const struct evidence *own = &s->evidence[at];
  bool on_host = false, other_world = false, is_over = true;
  int r = 0;
  *fit = (struct fit){.possible = true};
  for (size_t i = 0; i < at; i++) {
    const struct sl_run_process *member = &s->run->processes[i];
    const struct evidence *its = &s->evidence[i];
    if (member->attempt != attempt)
      continue;
    if (its->family != own->family) {
      fit->possible = false;
      return 0;
    }
    if (member->rank == process->rank) {
      fit->possible = false;
      r = its->host == own->host ? has_ended(s, i, process->start_ns) : 0;
      return r == 0 ? doubt(s, own->family) : r < 0 ? r : 0; /* two at the same time: ranks of both come as they like */
    }
    if (its->host == own->host) {
      on_host = true;
      /* A restart leaves no rank of its host running. */
      if (member->identity.restarts != process->identity.restarts && !process->identity.is_rehearsal)
        fit->possible = false;
      fit->same_launcher |= member->identity.parent_pid == process->identity.parent_pid;
    }
    fit->same_world |= own->world && own->world == its->world;
    other_world |= own->world && its->world && own->world != its->world;
  }
  if (other_world ||
      (on_host && !fit->same_launcher && !process->identity.joins_launchers && s->shares_parent[own->family]))
    fit->possible = false;
  if (!fit->possible || fit->same_world || process->identity.is_rehearsal)
    return 0;
  /* Clocks of different hosts can't tell what a launcher's id tells. */
  if (process->identity.is_told && !on_host)
    return 0;
  for (size_t i = at; i-- > 0 && is_over && r >= 0;)
    if (s->run->processes[i].attempt == attempt) {
      r = has_ended(s, i, process->start_ns);
      is_over = r > 0;
    }
  if (r < 0 || !is_over)
    return r < 0 ? r : 0;
  fit->possible = false;
  if (s->doubted[own->family] || process->identity.is_told)
    return 0;
  /* Or one host's clock is behind. */
  r = doubt(s, own->family);
  return r < 0 ? r : fit_find(s, at, attempt, fit);
}

static void attempts_forget(struct sl_run *run) {
  while (run->attempt_count > 0)
    sl_attempt_free(&run->attempts[--run->attempt_count]);
}

static int attempt_add(struct sl_run *run, const struct sl_run_process *process) {
  struct sl_attempt *grown = sl_list_grow(run->attempts, run->attempt_count, sizeof *grown);
  if (!grown)
    return -ENOMEM;
  run->attempts = grown;
  grown += run->attempt_count;
  *grown = (struct sl_attempt){.number = run->attempt_count + 1,
                               .start_ns = process->start_ns,
                               .world_size = process->world_size,
                               .told_by = process->identity.is_told ? SL_TOLD_launcher : SL_TOLD_time,
                               .name = strdup(process->identity.name)};
  return grown->name ? (int)(run->attempt_count++, 0) : -ENOMEM;
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
  if (best == run->attempt_count && attempt_add(run, &run->processes[at]) < 0)
    return sl_no_memory(s->error);
  run->processes[at].attempt = best;
  if (s->evidence[at].world)
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
  struct timespec now;
  int r = 0;
  clock_gettime(CLOCK_REALTIME, &now);
  struct sorting s = {.run = run,
                      .evidence = calloc(run->count, sizeof *s.evidence),
                      .doubted = calloc(run->count, sizeof *s.doubted),
                      .shares_parent = calloc(run->count, sizeof *s.shares_parent),
                      .now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
                      .error = error};
  if (!s.evidence || !s.doubted || !s.shares_parent) {
    r = sl_no_memory(error);
    goto finish;
  }
  qsort(run->processes, run->count, sizeof *run->processes, by_start);
  evidence_number(&s);
  do {
    s.again = false;
    attempts_forget(run);
    for (size_t i = 0; i < run->count && r == 0 && !s.again; i++)
      r = process_sort(&s, i);
  } while (r == 0 && s.again); /* once for each family at most */
  if (r < 0)
    goto finish;
  qsort(run->processes, run->count, sizeof *run->processes, by_attempt);
  if (attempts_finish(run) < 0)
    r = sl_no_memory(error);
finish:
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
  if (attempt->world_size > 0)
    snprintf(words, size, "%zu of %" PRId64 " ranks", attempt->count, attempt->world_size);
  else
    snprintf(words, size, "%zu process%s", attempt->count, attempt->count == 1 ? "" : "es");
}

const char *sl_attempt_words(const struct sl_attempt *attempt, char words[SL_ATTEMPT_CHARS]) {
  char when[40], ranks[64];
  const time_t seconds = (time_t)(attempt->start_ns / 1000000000u);
  struct tm parts;
  if (!gmtime_r(&seconds, &parts) || !strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &parts))
    snprintf(when, sizeof when, "%" PRIu64 " ns", attempt->start_ns);
  ranks_words(attempt, ranks, sizeof ranks);
  snprintf(words, SL_ATTEMPT_CHARS, "run %zu (%.80s%sbegan %s, %s)", attempt->number, attempt->name,
           *attempt->name ? ", " : "", when, ranks);
  return words;
}

void sl_run_note(const struct sl_run *run, const char *directory, size_t directories, struct sl_error *note) {
  const struct sl_attempt *used = &run->attempts[run->chosen], *whole = NULL;
  char words[SL_ATTEMPT_CHARS], more[32] = "", advice[80];
  bool inferred = false;
  for (size_t i = run->attempt_count; i-- > 0;) {
    const struct sl_attempt *attempt = &run->attempts[i];
    if (!whole && i != run->chosen && attempt->world_size == (int64_t)attempt->count)
      whole = attempt;
    inferred |= attempt->told_by != SL_TOLD_launcher;
  }
  if (directories > 1)
    snprintf(more, sizeof more, " and %zu more", directories - 1);
  if (whole && (int64_t)used->count < used->world_size)
    snprintf(advice, sizeof advice, "--run %zu shows the last whole one", whole->number);
  else if (run->attempt_count == 2)
    snprintf(advice, sizeof advice, "--run %zu shows the other", 2 - run->chosen);
  else
    snprintf(advice, sizeof advice, "'shardledger info' lists them, --run N shows another");
  sl_error_set(note, 0, "%s%s hold%s %zu runs: %s%s is used; %s%s", directory, more, *more ? "" : "s",
               run->attempt_count, run->chosen + 1 == run->attempt_count ? "the newest, " : "",
               sl_attempt_words(used, words), advice,
               inferred ? " (ranks, times and communicators told them apart, as no launcher gave an id)" : "");
}

void sl_attempt_free(struct sl_attempt *attempt) {
  free(attempt->name);
  free(attempt->ranks);
  *attempt = (struct sl_attempt){0};
}

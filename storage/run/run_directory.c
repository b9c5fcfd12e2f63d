/* Names say nothing, so each log is opened for what it says of itself: rank, number of ranks, and when it began. */
#include "run_directory.h"

#include "jobs.h"
#include "plugin/format/log_format.h"
#include "run_attempts.h"
#include "run_snapshots.h"
#include "storage/grow.h"
#include "storage/log/log_reader.h"
#include "storage/snapshot/snapshot_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_log_file(const char *name) {
  const char *suffix = strrchr(name, '.');
  return suffix && (strcmp(suffix, SL_SEGMENT_SUFFIX) == 0 || strcmp(suffix, SL_SEALED_SUFFIX) == 0);
}

static bool is_snapshot_name(const char *name) {
  const char *suffix = strrchr(name, '.');
  return suffix && (strcmp(suffix, ".pickle") == 0 || strcmp(suffix, ".pkl") == 0);
}

/* What a look at a directory found. */
struct found {
  uint64_t changed_ns; /* newest change of a log file */
  size_t processes;
  bool logs_beside; /* log files that lie beside process directories, and so are nobody's */
};

/* Whether an open directory holds log files itself; adds up their newest change. 1, 0 or a negative errno. */
static int has_log(int directory, uint64_t *changed_ns) {
  int again = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
  DIR *listing = again < 0 ? NULL : fdopendir(again);
  if (!listing) {
    r = -errno;
    if (again >= 0)
      close(again);
    return r;
  }
  errno = 0;
  for (struct dirent *entry; (entry = readdir(listing));) {
    struct stat status;
    if (!is_log_file(entry->d_name) || fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
      continue;
    r = 1;
    uint64_t changed = (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec;
    if (changed > *changed_ns)
      *changed_ns = changed;
  }
  closedir(listing);
  return r;
}

/* One that is not there, is a link, or is not ours to read is no process directory; what else fails is said. */
static bool is_passed_over(int r) {
  return r == -ENOENT || r == -ELOOP || r == -ENOTDIR || r == -EACCES || r == -EPERM;
}

/* Where the entry is a process directory, calls visit. */
static int entry_visit(int parent, const char *directory, const char *name,
                       int (*visit)(void *context, const char *path), void *context, struct found *found) {
  char *path = NULL;
  int child = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int r = child < 0 ? -errno : has_log(child, &found->changed_ns);
  if (child >= 0)
    close(child);
  if (r <= 0)
    return is_passed_over(r) ? 0 : r;
  found->processes++;
  if (!visit)
    return 0;
  if (asprintf(&path, "%s/%s", directory, name) < 0)
    return -ENOMEM;
  r = visit(context, path);
  free(path);
  return r;
}

static int snapshot_visit(const char *path, const struct stat *status, int (*visit)(void *context, const char *path),
                          void *context, struct found *found) {
  const uint64_t changed = (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
  found->processes++;
  found->changed_ns = changed > found->changed_ns ? changed : found->changed_ns;
  return visit ? visit(context, path) : 0;
}

/* Memory snapshots of PyTorch's in an open directory, by their names' ends and how they begin. */
static int snapshots_visit(DIR *listing, const char *directory, int (*visit)(void *context, const char *path),
                           void *context, struct found *found) {
  int r = 0;
  rewinddir(listing);
  for (struct dirent *entry; r == 0 && (entry = readdir(listing));) {
    struct stat status;
    char *path = NULL;
    if (!is_snapshot_name(entry->d_name) || fstatat(dirfd(listing), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(status.st_mode))
      continue;
    if (asprintf(&path, "%s/%s", directory, entry->d_name) < 0)
      return -ENOMEM;
    r = sl_snapshot_is(path) ? snapshot_visit(path, &status, visit, context, found) : 0;
    free(path);
  }
  return r;
}

/* Calls visit for every process directory in directory until it fails; for itself where it is one and holds none. */
static int processes_visit(const char *directory, int (*visit)(void *context, const char *path), void *context,
                           struct found *found) {
  uint64_t own_ns = 0;
  int r = 0, beside = 0;
  struct stat status;
  *found = (struct found){0};
  if (stat(directory, &status) == 0 && S_ISREG(status.st_mode) && sl_snapshot_is(directory))
    return snapshot_visit(directory, &status, visit, context, found);
  DIR *listing = opendir(directory);
  if (!listing)
    return -errno;
  for (struct dirent *entry; r == 0 && (entry = readdir(listing));)
    if (entry->d_name[0] != '.' && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
      r = entry_visit(dirfd(listing), directory, entry->d_name, visit, context, found);
  if (r == 0)
    r = beside = has_log(dirfd(listing), &own_ns);
  if (r == 0 && !found->processes)
    r = snapshots_visit(listing, directory, visit, context, found);
  closedir(listing);
  if (r < 0)
    return r;
  found->logs_beside = beside && found->processes;
  if (!beside || found->processes)
    return 0;
  found->processes = 1;
  found->changed_ns = own_ns;
  return visit ? visit(context, directory) : 0;
}

struct opening {
  struct sl_run *run;
  size_t directory; /* number of the one that is looked into */
  struct sl_error *error;
  struct opened { /* a process directory, or a snapshot */
    struct sl_run_process process;
    int r; /* of opening it; -ENODATA: it has no readable segment */
  } * found;
  size_t count;
  pthread_mutex_t mutex; /* for what follows */
  size_t next;           /* one that nobody has taken yet */
  size_t failed_at;      /* the first that failed; SIZE_MAX: none */
};

enum { RANK_MAX = (1 << 23) - 1 }; /* ids of rows, which have the rank in them, have room for it; others are no ranks */

static void process_close(struct sl_run_process *process) {
  free(process->path);
  process->path = NULL;
  sl_run_identity_free(&process->identity);
}

static int path_add(void *context, const char *path) {
  struct opening *opening = context;
  struct opened *added = SL_LIST_ADD(opening->found, opening->count);
  if (!added)
    return sl_no_memory(opening->error);
  *added = (struct opened){.process = {.path = strdup(path), .directory = opening->directory}};
  return added->process.path ? 0 : sl_no_memory(opening->error);
}

/* Its name alone is looked at: what it holds may be gigabytes. */
static void snapshot_open(struct sl_run_process *process) {
  struct stat status;
  process->bytes = stat(process->path, &status) == 0 ? (uint64_t)status.st_size : 0;
  process->world_size = -1;
  process->is_snapshot = true;
}

static int process_open(struct sl_run_process *process, struct sl_error *error) {
  struct sl_log *log = NULL;
  int r = sl_log_open(process->path, &log, error);
  if (r < 0)
    return r;
  struct sl_log_counts counts;
  sl_log_counts(log, &counts);
  const int64_t rank = sl_log_info_number(log, "rank"), start = sl_log_info_number(log, "start_ns");
  process->rank = rank < 0 || rank > RANK_MAX ? 0 : (uint32_t)rank;
  process->bytes = counts.bytes;
  process->start_ns = start < 0 ? 0 : (uint64_t)start;
  process->world_size = sl_log_info_number(log, "world_size");
  r = sl_run_identity_read(log, process->world_size, &process->identity);
  log = sl_log_close(log);
  return sl_or_no_memory(r, error);
}

/* The next one that is to be opened; NULL: there is none, or one has failed. */
static struct opened *opening_take(struct opening *opening) {
  pthread_mutex_lock(&opening->mutex);
  struct opened *taken =
      opening->failed_at == SIZE_MAX && opening->next < opening->count ? &opening->found[opening->next++] : NULL;
  pthread_mutex_unlock(&opening->mutex);
  return taken;
}

static void processes_open(void *context) {
  struct opening *opening = context;
  for (struct opened *one; (one = opening_take(opening));) {
    struct sl_error error = {{0}};
    if (sl_snapshot_is(one->process.path))
      snapshot_open(&one->process);
    else
      one->r = process_open(&one->process, &error);
    if (one->r == 0 || one->r == -ENODATA)
      continue;
    pthread_mutex_lock(&opening->mutex);
    if ((size_t)(one - opening->found) < opening->failed_at) {
      opening->failed_at = (size_t)(one - opening->found);
      *opening->error = error;
    }
    pthread_mutex_unlock(&opening->mutex);
  }
}

enum { SHARE = 16 }; /* so many processes are worth a job of their own */

/* Opens what was found (r: what that came to), several at once, and adds the processes in the order of finding. */
static int processes_add(struct opening *opening, int r) {
  struct sl_run *run = opening->run;
  if (r == 0)
    sl_jobs_run(sl_job_count(0, (opening->count + SHARE - 1) / SHARE), processes_open, opening);
  if (opening->failed_at != SIZE_MAX)
    r = opening->found[opening->failed_at].r;
  struct sl_run_process *grown = reallocarray(run->processes, run->count + opening->count, sizeof *grown);
  if (grown)
    run->processes = grown;
  else if (r == 0 && opening->count)
    r = sl_no_memory(opening->error);
  for (size_t i = 0; i < opening->count; i++)
    if (r == 0 && opening->found[i].r == 0)
      run->processes[run->count++] = opening->found[i].process;
    else
      process_close(&opening->found[i].process);
  return r;
}

/* Adds the processes of one directory. */
static int directory_open(const char *directory, size_t number, struct sl_run *out, struct sl_error *note,
                          struct sl_error *error) {
  struct stat status;
  const size_t before = out->count;
  if (stat(directory, &status) == 0 && S_ISREG(status.st_mode)) {
    int r = sl_snapshot_check(directory, error); /* what else it is, in a sentence */
    if (r < 0)
      return r;
  } else if (stat(directory, &status) < 0 || !S_ISDIR(status.st_mode)) {
    return sl_error_set(error, -ENOENT, "%s: no such directory", directory);
  }
  struct opening opening = {
      .run = out, .directory = number, .error = error, .mutex = PTHREAD_MUTEX_INITIALIZER, .failed_at = SIZE_MAX};
  struct found found;
  int r = processes_visit(directory, path_add, &opening, &found);
  r = processes_add(&opening, r);
  free(opening.found);
  if (r < 0 && !error->text[0])
    sl_error_set(error, r, "%s: %s", directory, strerror(-r));
  if (r < 0)
    return r;
  if (out->count == before)
    return sl_error_set(error, -ENODATA,
                        "%s: nothing was recorded here; record a run with 'shardledger run -o %s -- CMD'", directory,
                        directory);
  if (found.logs_beside && !note->text[0])
    sl_error_set(note, 0, "%s has log files beside its processes' directories, which are of no process: left out",
                 directory);
  return 0;
}

/* Leaves the processes of the chosen attempt alone. */
static void attempt_keep(struct sl_run *run) {
  const struct sl_attempt *chosen = &run->attempts[run->chosen];
  struct sl_run_process *processes = run->processes;
  for (size_t i = 0; i < run->count; i++)
    if (i < chosen->first || i >= chosen->first + chosen->count)
      process_close(&processes[i]);
  if (chosen->first)
    memmove(processes, processes + chosen->first, chosen->count * sizeof *processes);
  run->count = chosen->count;
}

/* The newest process of a directory, which has one. */
static const struct sl_run_process *newest_of(const struct sl_run *run, size_t directory) {
  const struct sl_run_process *newest = NULL;
  for (size_t i = 0; i < run->count; i++)
    if (run->processes[i].directory == directory && (!newest || run->processes[i].start_ns > newest->start_ns))
      newest = &run->processes[i];
  return newest;
}

/* Each of several directories has ranks of the chosen attempt, or it is said why they are not one job's. */
static int check_one_job(const char *const *directories, size_t count, const struct sl_run *run,
                         struct sl_error *error) {
  const struct sl_attempt *chosen = &run->attempts[run->chosen];
  for (size_t directory = 0; directory < count; directory++) {
    const struct sl_run_process *its = NULL, *other = &run->processes[chosen->first];
    for (size_t i = chosen->first; i < chosen->first + chosen->count && !its; i++)
      if (run->processes[i].directory == directory)
        its = &run->processes[i];
    if (its)
      continue;
    its = newest_of(run, directory);
    const char *one = directories[directory], *another = directories[other->directory];
    for (size_t i = chosen->first; i < chosen->first + chosen->count; i++)
      if (run->processes[i].rank == its->rank)
        return sl_error_set(error, -EINVAL,
                            "rank %u is in %s and in %s: these are different runs, or one of them is named twice",
                            its->rank, one, directories[run->processes[i].directory]);
    if (its->world_size != other->world_size && its->world_size >= 0 && other->world_size >= 0)
      return sl_error_set(error, -EINVAL,
                          "%s is of a job with %lld ranks and %s of one with %lld: these are different runs", one,
                          (long long)its->world_size, another, (long long)other->world_size);
    if (strcmp(its->identity.name, other->identity.name) != 0)
      return sl_error_set(error, -EINVAL, "%s is of the run '%s' and %s of '%s': these are different runs", one,
                          its->identity.name, another, other->identity.name);
    return sl_error_set(error, -EINVAL, "%s and %s %s: these are different runs", one, another,
                        chosen->told_by == SL_TOLD_communicator ? "have no communicator in common"
                                                                : "were recorded at different times");
  }
  return 0;
}

int sl_run_open(const char *const *directories, size_t count, const char *attempt, struct sl_run *out,
                struct sl_error *note, struct sl_error *error) {
  int r = 0;
  *out = (struct sl_run){0};
  note->text[0] = 0;
  for (size_t i = 0; i < count && r == 0; i++)
    r = directory_open(directories[i], i, out, note, error);
  if (r == 0 && out->processes[0].is_snapshot)
    return sl_run_of_snapshots(out, directories[0], attempt, error);
  if (r == 0)
    r = sl_run_sort(out, error);
  if (r == 0)
    r = sl_run_choose(out, directories[0], attempt, &out->chosen, error);
  if (r == 0 && count > 1)
    r = check_one_job(directories, count, out, error);
  if (r < 0)
    return r;
  if (out->attempt_count > 1)
    sl_run_note(out, directories[0], count, note);
  attempt_keep(out);
  return 0;
}

void sl_run_close(struct sl_run *run) {
  for (size_t i = 0; i < run->count; i++)
    process_close(&run->processes[i]);
  free(run->processes);
  for (size_t i = 0; i < run->attempt_count; i++)
    sl_attempt_free(&run->attempts[i]);
  free(run->attempts);
  *run = (struct sl_run){0};
}

int sl_run_visit(const char *directory, int (*visit)(void *context, const char *path), void *context) {
  struct found found;
  return processes_visit(directory, visit, context, &found);
}

struct paths {
  char **list;
  size_t count;
};

static int path_keep(void *context, const char *path) {
  struct paths *paths = context;
  return sl_text_add(&paths->list, &paths->count, path) ? 0 : -ENOMEM;
}

static int by_name(const void *left, const void *right) {
  return strcmp(*(char *const *)left, *(char *const *)right);
}

int sl_run_paths(const char *directory, char ***out) {
  struct paths paths = {0};
  int r = sl_run_visit(directory, path_keep, &paths);
  if (paths.count)
    qsort(paths.list, paths.count, sizeof *paths.list, by_name);
  if (r == 0 && out) {
    *out = paths.list;
    return (int)paths.count;
  }
  sl_paths_free(paths.list, (int)paths.count);
  return r < 0 ? r : (int)paths.count;
}

void sl_paths_free(char **paths, int count) {
  for (int i = 0; i < count; i++)
    free(paths[i]);
  free(paths);
}

int sl_run_changed(const char *directory, uint64_t *changed_ns) {
  struct found found;
  int r = processes_visit(directory, NULL, NULL, &found);
  *changed_ns = found.changed_ns;
  return r;
}

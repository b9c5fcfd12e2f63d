/* Writes a run's figures as Prometheus reads them. */
#include "serve/metrics.h"

#include "output/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum unit { UNIT_bytes, UNIT_ns, UNIT_number };

struct figure {
  bool known;
  uint64_t value;
};

static const struct metric {
  const char *name, *type, *help;
  enum unit unit;
} metrics[] = {
#define METRIC(name, type, unit, known, value, help) {#name, #type, help, UNIT_##unit},
#include "serve/metrics.def"
#undef METRIC
};
enum {
  METRICS = sizeof metrics / sizeof metrics[0],
  PROCESS = 1,
  CATEGORIES = SL_METRICS_SERIES - METRICS - PROCESS, /* of a rank, the largest; what is left is ALL_OTHERS */
};
_Static_assert(CATEGORIES >= 12, "a sharded job has a dozen categories at once");

static void figures_read(const struct sl_live_state *s, struct figure figures[METRICS]) {
  const struct figure all[] = {
#define METRIC(name, type, unit, known, value, help) {known, (uint64_t)(value)},
#include "serve/metrics.def"
#undef METRIC
  };
  memcpy(figures, all, sizeof all);
}

/* ---- the text ---- */

static void put_head(FILE *file, const char *name, const char *type, const char *help) {
  fprintf(file, "# HELP shardledger_%s %s\n# TYPE shardledger_%s %s\n", name, help, name, type);
}

/* Names are other people's: what Prometheus would not read is escaped or replaced. */
static void put_label(FILE *file, const char *name, const char *value) {
  if (!value || !*value)
    return; /* as good as a label that is not there */
  fprintf(file, ",%s=\"", name);
  while (*value) {
    uint32_t character;
    const int bytes = sl_text_next(value, &character);
    if (*value == '\n')
      fputs("\\n", file);
    else if (*value == '"' || *value == '\\')
      fprintf(file, "\\%c", *value);
    else if (character == SL_REPLACEMENT)
      fputs("\xef\xbf\xbd", file);
    else
      fwrite(value, 1, (size_t)bytes, file);
    value += bytes;
  }
  fputc('"', file);
}

static void put_number_label(FILE *file, const char *name, int64_t number) {
  if (number >= 0)
    fprintf(file, ",%s=\"%" PRId64 "\"", name, number);
}

/* Up to the last label, open for more. */
static void put_series(FILE *file, const char *name, uint32_t rank, const struct sl_live_state *s) {
  fprintf(file, "shardledger_%s{rank=\"%" PRIu32 "\"", name, rank);
  put_number_label(file, "local_rank", s->local_rank);
  put_label(file, "node", s->k8s_node && *s->k8s_node ? s->k8s_node : s->host);
  put_label(file, "gpu_uuid", s->device_uuid);
  put_label(file, "slurm_job_id", s->slurm_job_id);
}

static void put_value(FILE *file, enum unit unit, uint64_t value) {
  if (unit == UNIT_ns)
    fprintf(file, "} %" PRIu64 ".%09" PRIu64 "\n", value / 1000000000u, value % 1000000000u);
  else
    fprintf(file, "} %" PRIu64 "\n", value);
}

/* ---- categories ---- */

/* With blanks, so that no category has such a name. */
#define NOT_DECIDED "not decided yet"
#define ALL_OTHERS "all others"

struct share {
  const char *name;
  uint64_t bytes;
};

static int by_size(const void *left, const void *right) {
  const struct share *a = left, *b = right;
  return a->bytes < b->bytes ? 1 : a->bytes > b->bytes ? -1 : strcmp(a->name, b->name);
}

static void share_add(struct share *shares, size_t *count, const char *name, uint64_t bytes) {
  size_t at = 0;
  while (at < *count && strcmp(shares[at].name, name) != 0)
    at++;
  if (at == *count)
    shares[(*count)++] = (struct share){name, 0};
  shares[at].bytes += bytes;
}

/* A series for each category; what may still become one of several is one together. */
static void put_categories(FILE *file, uint32_t rank, const struct sl_live_state *s) {
  struct share shares[SL_LIVE_CATEGORIES];
  size_t count = 0;
  for (size_t i = 0; i < s->category_count; i++)
    share_add(shares, &count, s->categories[i].several ? NOT_DECIDED : s->categories[i].name, s->categories[i].bytes);
  qsort(shares, count, sizeof *shares, by_size);
  for (size_t i = CATEGORIES; i < count; i++)
    shares[CATEGORIES - 1].bytes += shares[i].bytes;
  if (count > CATEGORIES) {
    shares[CATEGORIES - 1].name = ALL_OTHERS;
    count = CATEGORIES;
  }
  for (size_t i = 0; i < count; i++) {
    put_series(file, "memory_bytes", rank, s);
    put_label(file, "category", shares[i].name);
    put_value(file, UNIT_bytes, shares[i].bytes);
  }
}

/* ---- the run ---- */

static void put_run(FILE *file, const struct sl_live_run *run) {
  int64_t world_size = 0;
  for (size_t i = 0; i < run->count; i++)
    if (run->processes[i].world_size > world_size)
      world_size = run->processes[i].world_size;
  put_head(file, "build_info", "gauge", "The version of ShardLedger that reads the logs; always 1.");
  fprintf(file, "shardledger_build_info{version=\"%s\"} 1\n", SL_VERSION);
  put_head(file, "ranks", "gauge", "Ranks whose logs are there.");
  fprintf(file, "shardledger_ranks %zu\n", run->count);
  if (world_size) {
    put_head(file, "world_size", "gauge", "Ranks that the job has.");
    fprintf(file, "shardledger_world_size %" PRId64 "\n", world_size);
  }
}

static void put_process(FILE *file, uint32_t rank, const struct sl_live_process *process,
                        const struct sl_live_state *s) {
  put_series(file, "process_info", rank, s);
  put_number_label(file, "pid", s->pid);
  put_label(file, "host", s->host);
  put_label(file, "gpu", s->device_name);
  put_label(file, "torch_version", s->torch_version);
  put_label(file, "torchelastic_run_id", s->run_id);
  put_label(file, "namespace", s->k8s_namespace);
  put_label(file, "pod", s->k8s_pod);
  put_label(file, "rehearsal", process->is_rehearsal ? "true" : NULL);
  put_value(file, UNIT_number, 1);
}

/* All series of a metric come together: so every rank is looked at first. */
int sl_metrics_write(FILE *file, const struct sl_live_run *run) {
  struct sl_live_state *states = calloc(run->count + 1, sizeof *states);
  struct figure(*figures)[METRICS] = calloc(run->count + 1, sizeof *figures);
  int r = states && figures ? 0 : -ENOMEM;
  for (size_t i = 0; i < run->count && r == 0; i++) {
    sl_live_rank_state(run->processes[i].live, &states[i]);
    r = sl_live_rank_categories(run->processes[i].live, &states[i]);
    figures_read(&states[i], figures[i]);
  }
  if (r < 0)
    goto finish;
  put_run(file, run);
  if (run->count == 0)
    goto finish;
  put_head(file, "process_info", "gauge", "What is known of a rank's process; always 1.");
  for (size_t i = 0; i < run->count; i++)
    put_process(file, run->processes[i].rank, &run->processes[i], &states[i]);
  put_head(file, "memory_bytes", "gauge", "Allocated memory by category; its sum is shardledger_allocated_bytes.");
  for (size_t i = 0; i < run->count; i++)
    put_categories(file, run->processes[i].rank, &states[i]);
  for (size_t m = 0; m < METRICS; m++) {
    bool begun = false;
    for (size_t i = 0; i < run->count; i++) {
      if (!figures[i][m].known)
        continue;
      if (!begun)
        put_head(file, metrics[m].name, metrics[m].type, metrics[m].help);
      begun = true;
      put_series(file, metrics[m].name, run->processes[i].rank, &states[i]);
      put_value(file, metrics[m].unit, figures[i][m].value);
    }
  }
finish:
  free(states);
  free(figures);
  return r;
}

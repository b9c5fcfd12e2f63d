/* Reads from a process's log which run it belongs to. */
#include "run_identity.h"

#include "nvtx_ranges/kinds.h"
#include "storage/log/nccl_payload.h"
#include "storage/memory_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_UNTIL_WORLD 1000000 /* the first collective makes it, which is in the first step at the latest */
#define EVENTS_UNTIL_STEP 10000000 /* a setup may make and load much */

static const char *text_of(const struct sl_log *log, const char *key) {
  const char *text = sl_log_info(log, key);
  return text ? text : "";
}

/* "slurm 4711.0", "torchrun nightly": each part that is known, after *between; a part has no blank but its first. */
static void add_part(FILE *name, const char **between, const char *launcher, const char *id, const char *more) {
  if (!*id)
    return;
  fprintf(name, "%s%s %s%s%s", *between, launcher, id, *more ? "." : "", more);
  *between = ", ";
}

int sl_run_identity_read(const struct sl_log *log, int64_t world_size, struct sl_run_identity *out) {
  static const char *const keys[] = {"torchelastic_run_id", "slurm_job_id",  "slurm_restart_count", "pbs_job_id",
                                     "lsf_job_id",          "lsf_job_index", "mpi_job_id",          "master_port"};
  *out = (struct sl_run_identity){.pid = sl_log_info_number(log, "pid"),
                                  .parent_pid = sl_log_info_number(log, "ppid"),
                                  .restarts = sl_log_info_number(log, "torchelastic_restart_count")};
  const char *run_id = text_of(log, "torchelastic_run_id"), *step = text_of(log, "slurm_step_id");
  struct sl_memory_file family_text, name_text;
  const char *rehearsal = text_of(log, "rehearsal"), *between = "";
  const bool is_elastic = *run_id != 0; /* then each host may have a step of its own */
  if (strcmp(run_id, "none") == 0)      /* torchrun's word where nobody gave an id */
    run_id = "";
  out->joins_launchers = *run_id != 0;
  FILE *family = sl_memory_file_open(&family_text), *name = sl_memory_file_open(&name_text);
  out->host = strdup(text_of(log, "host"));
  out->ancestors = strdup(text_of(log, *text_of(log, "ancestors") ? "ancestors" : "ppid"));
  out->is_rehearsal = *rehearsal != 0;
  if (family && *rehearsal) {
    fprintf(family, "%" PRId64 "\nrehearsal %s", world_size, rehearsal);
  } else if (family) {
    fprintf(family, "%" PRId64, world_size);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
      fprintf(family, "\n%s", text_of(log, keys[i]));
    }
    fprintf(family, "\n%s", is_elastic ? "" : step);
  }
  if (name && *rehearsal) {
    add_part(name, &between, "rehearsal", rehearsal, "");
  } else if (name) {
    add_part(name, &between, "torchrun", run_id, "");
    add_part(name, &between, "slurm", text_of(log, "slurm_job_id"), step);
    add_part(name, &between, "pbs", text_of(log, "pbs_job_id"), "");
    add_part(name, &between, "lsf", text_of(log, "lsf_job_id"), text_of(log, "lsf_job_index"));
    if (!*text_of(log, "slurm_job_id")) /* whose PMIx has nothing more to say */
      add_part(name, &between, "mpi", text_of(log, "mpi_job_id"), "");
  }
  out->family = sl_memory_file_close(&family_text, NULL);
  out->name = sl_memory_file_close(&name_text, NULL);
  const bool whole = out->family && out->name && out->host && out->ancestors;
  out->is_told = whole && *out->name;
  return whole ? 0 : -ENOMEM;
}

void sl_run_identity_free(struct sl_run_identity *identity) {
  free(identity->family);
  free(identity->name);
  free(identity->host);
  free(identity->ancestors);
  *identity = (struct sl_run_identity){0};
}

bool sl_run_identity_is(const struct sl_run_identity *identity, const char *word) {
  const size_t length = strlen(word);
  if (length == 0)
    return false;
  if (strcmp(identity->name, word) == 0)
    return true;
  /* An id stands behind a blank, and before the next part, a step or the end. */
  for (const char *at = identity->name; (at = strchr(at, ' ')); at++) {
    const char *end = at + 1 + length;
    if (strncmp(at + 1, word, length) == 0 && (*end == 0 || *end == ',' || *end == '.'))
      return true;
  }
  return false;
}

/* ---- the record itself ---- */

static int world_find(struct sl_log *log, struct sl_nccl_schemas *schemas, int64_t world_size, uint64_t *id,
                      struct sl_error *error) {
  struct sl_event event;
  int r = 0;
  for (int n = 0; n < EVENTS_UNTIL_WORLD && (r = sl_log_next(log, &event, error)) > 0; n++) {
    if (event.type == SL_EVENT_nvtx_schema_entry) {
      if (sl_nccl_schemas_add(schemas, event.payload) < 0)
        return sl_no_memory(error);
    } else if (event.type == SL_EVENT_range_payload) {
      const struct sl_event_range_payload *e = event.payload;
      struct sl_nccl_payload payload;
      sl_nccl_payload_read(schemas, e->domain, e->schema, e + 1, e->length, &payload);
      if (payload.has_communicator && payload.ranks == world_size) {
        *id = payload.communicator;
        return 0;
      }
    } else if (event.type == SL_EVENT_nccl_communicator) {
      const struct sl_event_nccl_communicator *made = event.payload;
      if ((int64_t)made->ranks == world_size) {
        *id = made->communicator;
        return 0;
      }
    }
  }
  return r < 0 ? r : 0;
}

int sl_run_world_communicator(const char *path, int64_t world_size, uint64_t *id, struct sl_error *error) {
  struct sl_log *log = NULL;
  *id = 0;
  if (world_size < 2)
    return 0;
  int r = sl_log_open(path, &log, error);
  struct sl_nccl_schemas *schemas = r < 0 ? NULL : sl_nccl_schemas_new(log);
  if (r == 0)
    r = schemas ? world_find(log, schemas, world_size, id, error) : sl_no_memory(error);
  schemas = sl_nccl_schemas_free(schemas);
  log = sl_log_close(log);
  return r;
}

int sl_run_process_end(const char *path, uint64_t *end_ns, struct sl_error *error) {
  struct sl_log *log = NULL;
  int r = sl_log_open(path, &log, error);
  if (r == 0)
    *end_ns = sl_log_end_ns(log);
  log = sl_log_close(log);
  return r;
}

int sl_run_has_steps(const char *path, struct sl_error *error) {
  struct sl_log *log = NULL;
  struct sl_event event;
  uint16_t own = 0; /* the companion's domain, once it is known */
  int r = sl_log_open(path, &log, error), found = 0;
  for (int n = 0; r == 0 && !found && n < EVENTS_UNTIL_STEP; n++) {
    const int more = sl_log_next(log, &event, error);
    if (more <= 0) {
      r = more;
      break;
    }
    if (event.type == SL_EVENT_nvtx_domain) {
      const struct sl_event_nvtx_domain *domain = event.payload;
      if (strcmp(sl_log_string(log, domain->name), SL_NVTX_DOMAIN) == 0)
        own = domain->id;
    } else if (event.type == SL_EVENT_range_start) {
      const struct sl_event_range_start *range = event.payload;
      found = own && range->domain == own && range->category == SL_KIND_step;
    }
  }
  log = sl_log_close(log);
  return r < 0 ? r : found;
}

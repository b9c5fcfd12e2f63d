/*
 * Launchers name the same facts differently; the first variable that is set counts. What they say of the run that the
 * process is of goes into the log one by one: which of it tells two runs apart is the reader's (run_identity.h).
 */
#include "process_description.h"

#include "placeholders.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void describe_number(const char *key, uint64_t number, void (*info)(const char *, const char *)) {
  char text[24];
  snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
  info(key, text);
}

/* The parent of any process, from "pid (name) state ppid …", whose name may hold anything; 0: not to be read. */
static long parent_of(long pid) {
  char path[40], text[512];
  snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t length = file < 0 ? 0 : read(file, text, sizeof(text) - 1);
  if (file >= 0)
    close(file);
  text[length > 0 ? length : 0] = 0;
  const char *name_end = strrchr(text, ')');
  long parent = 0;
  return name_end && sscanf(name_end + 1, " %*c %ld", &parent) == 1 ? parent : 0;
}

/* The parent, its parent and so on, without init: "4711 4700 12". /proc is the kernel's own: it answers at once. */
static void describe_ancestors(void (*info)(const char *, const char *)) {
  enum { ancestors_max = 16 };
  char text[ancestors_max * 24] = "";
  size_t length = 0;
  long pid = getppid();
  for (int i = 0; i < ancestors_max && pid > 1; i++, pid = parent_of(pid))
    length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%ld", i ? " " : "", pid);
  info("ancestors", text);
}

void sl_process_describe(uint64_t start_ns, uint64_t keep_last_bytes,
                         void (*info)(const char *key, const char *value)) {
  static const struct {
    const char *key;
    const char *variables[3]; /* the first one that is set counts: torchrun, Slurm, Open MPI */
  } infos[] = {
      {"rank", {SL_RANK_VARIABLES}},
      {"world_size", {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"}},
      {"local_rank", {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}},
      {"allocator_config", {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", NULL}},
      {"torchelastic_run_id", {"TORCHELASTIC_RUN_ID", NULL, NULL}},
      {"torchelastic_restart_count", {"TORCHELASTIC_RESTART_COUNT", NULL, NULL}},
      {"slurm_job_id", {"SLURM_JOB_ID", "SLURM_JOBID", NULL}}, /* of a job array each element's own */
      {"slurm_step_id", {"SLURM_STEP_ID", "SLURM_STEPID", NULL}},
      {"slurm_restart_count", {"SLURM_RESTART_COUNT", NULL, NULL}},
      {"pbs_job_id", {"PBS_JOBID", NULL, NULL}},
      {"lsf_job_id", {"LSB_JOBID", NULL, NULL}},
      {"lsf_job_index", {"LSB_JOBINDEX", NULL, NULL}},
      {"mpi_job_id", {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL}},
      {"master_addr", {"MASTER_ADDR", NULL, NULL}},
      {"master_port", {"MASTER_PORT", NULL, NULL}},
      /* Kubernetes' downward API sets what the pod's manifest names: by OpenTelemetry's words, or the usual ones. */
      {"k8s_pod_name", {"K8S_POD_NAME", "POD_NAME", NULL}},
      {"k8s_namespace_name", {"K8S_NAMESPACE_NAME", "POD_NAMESPACE", NULL}},
      {"k8s_node_name", {"K8S_NODE_NAME", NULL, NULL}}, /* NODE_NAME is also what CI servers call their agents */
      {"rehearsal", {"SHARDLEDGER_REHEARSAL_ID", NULL, NULL}},
  };
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  info("host", host);
  describe_number("pid", (uint64_t)getpid(), info);
  describe_number("ppid", (uint64_t)getppid(), info);
  describe_ancestors(info);
  describe_number("start_ns", start_ns, info);
  if (keep_last_bytes)
    describe_number("keep_last_bytes", keep_last_bytes, info);
  info("shardledger_version", SL_VERSION);
  for (size_t i = 0; i < sizeof(infos) / sizeof(infos[0]); i++) {
    const char *value = NULL;
    for (int v = 0; v < 3 && !(value && *value); v++)
      value = infos[i].variables[v] ? secure_getenv(infos[i].variables[v]) : NULL;
    info(infos[i].key, value);
  }
}

/*
 * NVML speaks of all processes on the device; this one is found in its list by its pid, which in a container may be
 * another.
 */
#include "nvml.h"

#include "undisturbed.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

/* NVML's own types, as its header fixes them for this version of the function; the header is not needed to build. */
typedef struct nvml_device *nvml_device;
struct nvml_process {
  unsigned pid;
  unsigned long long bytes; /* UNKNOWN_BYTES where the driver does not tell, as on Windows */
  unsigned gpu_instance, compute_instance;
};

enum { NVML_SUCCESS = 0, PROCESSES = 256 };
#define UNKNOWN_BYTES (~0ull)

static struct {
  int (*init)(void);
  int (*by_uuid)(const char *, nvml_device *);
  int (*processes)(nvml_device, unsigned *, struct nvml_process *);
} nvml;

static int load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL); /* kept to the end, as NCCL keeps its own */
  if (!library)
    return -ENOENT;
  *(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
  *(void **)&nvml.by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
  *(void **)&nvml.processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!nvml.processes) /* the same structure, under its name of drivers before 510 */
    *(void **)&nvml.processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
  if (!nvml.init || !nvml.by_uuid || !nvml.processes)
    return -ENOENT;
  return nvml.init() == NVML_SUCCESS ? 0 : -EIO;
}

static int loaded(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static int state = 1; /* 1: not tried */
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  pthread_mutex_lock(&lock);
  if (state == 1)
    state = load();
  int r = state;
  pthread_mutex_unlock(&lock);
  sl_undisturbed_end(&before);
  return r;
}

int sl_nvml_process_memory(const char *uuid, struct sl_nvml_memory *out) {
  struct nvml_process processes[PROCESSES];
  unsigned count = PROCESSES;
  nvml_device device = NULL;
  unsigned self = (unsigned)getpid();
  int r = loaded();
  if (r < 0)
    return r;
  if (nvml.by_uuid(uuid, &device) != NVML_SUCCESS || nvml.processes(device, &count, processes) != NVML_SUCCESS)
    return -EIO;
  int found = 0;
  *out = (struct sl_nvml_memory){0};
  for (unsigned i = 0; i < count && i < PROCESSES; i++) {
    if (processes[i].bytes == UNKNOWN_BYTES)
      continue;
    if (processes[i].pid == self) {
      found = 1;
      out->own_bytes += processes[i].bytes;
    } else {
      out->others++;
      out->other_bytes += processes[i].bytes;
    }
  }
  return found ? 0 : -ESRCH;
}

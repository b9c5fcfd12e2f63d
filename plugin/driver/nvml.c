/*
 * NVML speaks of all processes on the device; this one is found in its list by its pid, which in a container may be
 * another.
 */
#include "nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* NVML's own types, as its header fixes them for this version of the functions; the header is not needed to build. */
typedef struct nvml_device *nvml_device;
struct nvml_memory {
  unsigned long long total, free, used;
};
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
  int (*memory)(nvml_device, struct nvml_memory *);
  int (*processes)(nvml_device, unsigned *, struct nvml_process *);
} nvml;

int sl_nvml_load(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL); /* kept to the end, as NCCL keeps its own */
  if (!library)
    return -ENOENT;
  *(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
  *(void **)&nvml.by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
  *(void **)&nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
  *(void **)&nvml.processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!nvml.processes) /* the same structure, under its name of drivers before 510 */
    *(void **)&nvml.processes = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
  return nvml.init && nvml.by_uuid && nvml.memory && nvml.processes ? 0 : -ENOENT;
}

int sl_nvml_device(const char *uuid, void **out) {
  static const char *const prefixes[] = {"GPU", "MIG"}; /* CUDA does not say which of the two it is */
  static bool initialized;
  nvml_device device;
  char text[64];
  if (!initialized && nvml.init() != NVML_SUCCESS)
    return -EIO;
  initialized = true;
  for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
    snprintf(text, sizeof(text), "%s-%s", prefixes[i], uuid);
    if (nvml.by_uuid(text, &device) == NVML_SUCCESS) {
      *out = device;
      return 0;
    }
  }
  return -EIO;
}

int sl_nvml_free_bytes(void *device, uint64_t *out) {
  struct nvml_memory memory;
  if (nvml.memory(device, &memory) != NVML_SUCCESS)
    return -EIO;
  *out = memory.free;
  return 0;
}

int sl_nvml_process_memory(void *device, struct sl_nvml_memory *out) {
  struct nvml_process processes[PROCESSES];
  unsigned count = PROCESSES;
  unsigned self = (unsigned)getpid();
  int found = 0;
  if (nvml.processes(device, &count, processes) != NVML_SUCCESS)
    return -EIO;
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

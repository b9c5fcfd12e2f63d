/*
 * Stands in for CUDA's runtime, and for the parts of its driver that expandable segments need, on a machine without a
 * GPU: PyTorch's own allocator works on it as on a device of 16 GiB. Memory is addresses that nothing can read or
 * write; kernels, copies and memsets do nothing; an event is not there when it is first asked for, unless somebody
 * waited. What is not here ends the process and says its name: record.py generates that from the undefined symbols of
 * PyTorch's libraries.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CAPACITY (16ULL << 30)
#define CONTEXT (512ULL << 20) /* in use before the first allocation */
#define GRANULARITY (2ULL << 20)
#define REGIONS 65536

struct region {
  uintptr_t address;
  size_t size;
};

/* A function under a name that this version's headers declare otherwise, or not at all. */
#define UNDER(name) __asm__(#name)

static struct region regions[REGIONS];
static uint64_t used = CONTEXT;
static cudaError_t last_error;

static cudaError_t fails(cudaError_t error) {
  last_error = error;
  return error;
}

/* Addresses as CUDA gives them: multiples of 2 MiB, and no others' in this process. */
static void *reserve(size_t size) {
  const size_t rounded = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  char *place = mmap(NULL, rounded + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED)
    return NULL;
  char *start = (char *)(((uintptr_t)place + GRANULARITY - 1) / GRANULARITY * GRANULARITY);
  if (start > place)
    munmap(place, (size_t)(start - place));
  munmap(start + rounded, (size_t)(place + GRANULARITY - start));
  for (size_t i = 0; i < REGIONS; i++)
    if (!regions[i].address) {
      regions[i] = (struct region){(uintptr_t)start, rounded};
      return start;
    }
  abort();
}

static size_t give_back(void *pointer) {
  for (size_t i = 0; i < REGIONS; i++)
    if (regions[i].address == (uintptr_t)pointer) {
      const size_t size = regions[i].size;
      munmap(pointer, size);
      regions[i] = (struct region){0};
      return size;
    }
  fprintf(stderr, "stand-in: %p was never allocated\n", pointer);
  abort();
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **pointer, size_t size) {
  const size_t taken = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  if (used + taken > CAPACITY)
    return fails(cudaErrorMemoryAllocation);
  *pointer = reserve(size);
  used += taken;
  return cudaSuccess;
}

cudaError_t cudaFree(void *pointer) {
  if (pointer)
    used -= give_back(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *free_bytes = CAPACITY - used;
  *total = CAPACITY;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
  *pointer = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  return *pointer ? cudaSuccess : fails(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *pointer) {
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer) {
  memset(out, 0, sizeof(*out));
  for (size_t i = 0; i < REGIONS; i++)
    if ((uintptr_t)pointer - regions[i].address < regions[i].size) {
      out->type = cudaMemoryTypeDevice;
      out->devicePointer = (void *)pointer;
    }
  return cudaSuccess;
}

/* ---- memory of expandable segments: the driver's virtual memory management ---- */

int cuMemGetAllocationGranularity(size_t *out, const void *properties, int option) {
  *out = GRANULARITY;
  return 0;
}

int cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t wanted, uint64_t flags) {
  void *place = reserve(size);
  *out = (uintptr_t)place;
  return place ? 0 : 2;
}

int cuMemAddressFree(uint64_t place, size_t size) {
  give_back((void *)(uintptr_t)place);
  return 0;
}

int cuMemCreate(uint64_t *handle, size_t size, const void *properties, uint64_t flags) {
  if (used + size > CAPACITY)
    return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
  used += size;
  *handle = size; /* all that is to be known of it */
  return 0;
}

int cuMemRelease(uint64_t handle) {
  used -= handle;
  return 0;
}

int cuMemMap(uint64_t place, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
  return 0;
}

int cuMemUnmap(uint64_t place, size_t size) {
  return 0;
}

int cuMemSetAccess(uint64_t place, size_t size, const void *access, size_t count) {
  return 0;
}

int cuGetErrorString(int error, const char **out) {
  *out = error == 2 ? "out of memory" : "an error of the stand-in";
  return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return 0;
}

int cuMemGetAddressRange(uint64_t *start, size_t *size, uint64_t pointer) {
  for (size_t i = 0; i < REGIONS; i++)
    if (pointer - regions[i].address < regions[i].size) {
      *start = regions[i].address;
      *size = regions[i].size;
      return 0;
    }
  return 1; /* CUDA_ERROR_INVALID_VALUE */
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  return (int)cudaDeviceGetAttribute(value, attribute, device);
}

int cuLogsRegisterCallback(void *function, void *argument, void *out) {
  return 0;
}

static cudaError_t entry_point(const char *symbol, void **function, int *result) {
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (result)
    *result = 0; /* found */
  if (!*function)
    fprintf(stderr, "stand-in: the driver's %s is not there\n", symbol);
  return *function ? cudaSuccess : fails(cudaErrorSymbolNotFound);
}

cudaError_t any_entry_point(const char *symbol, void **function, uint64_t flags, int *result)
    UNDER(cudaGetDriverEntryPoint);
cudaError_t any_entry_point(const char *symbol, void **function, uint64_t flags, int *result) {
  return entry_point(symbol, function, result);
}

cudaError_t entry_point_of(const char *symbol, void **function, unsigned version, uint64_t flags, int *result)
    UNDER(cudaGetDriverEntryPointByVersion);
cudaError_t entry_point_of(const char *symbol, void **function, unsigned version, uint64_t flags, int *result) {
  return entry_point(symbol, function, result);
}

/* NVML, which expandable segments ask whether devices of other nodes could map them: no. */

int nvmlInit(void) {
  return 9; /* NVML_ERROR_DRIVER_NOT_LOADED: torch.cuda then counts devices by the runtime */
}

int nvmlInit_v2(void) {
  return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
  *device = &regions;
  return 0;
}

int nvmlDeviceGetGpuFabricInfoV(void *device, void *out) {
  enum { STATE = 28 };               /* of nvmlGpuFabricInfoV_t: behind version, cluster, status and clique */
  ((unsigned char *)out)[STATE] = 0; /* NVML_GPU_FABRIC_STATE_NOT_SUPPORTED */
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *out) {
  *count = 0;
  return 0;
}

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : fails(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
  memset(out, 0, sizeof(*out));
  strcpy(out->name, "no GPU: a stand-in for one");
  out->totalGlobalMem = CAPACITY;
  out->major = 9;
  out->warpSize = 32;
  out->multiProcessorCount = 8;
  out->maxThreadsPerBlock = 1024;
  out->maxThreadsPerMultiProcessor = 2048;
  out->maxBlocksPerMultiProcessor = 32;
  out->regsPerBlock = out->regsPerMultiprocessor = 65536;
  out->sharedMemPerBlock = 48 << 10;
  out->sharedMemPerBlockOptin = out->sharedMemPerMultiprocessor = 96 << 10;
  for (int i = 0; i < 3; i++) {
    out->maxThreadsDim[i] = i < 2 ? 1024 : 64;
    out->maxGridSize[i] = i ? 65535 : 0x7fffffff;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : attribute == cudaDevAttrMultiProcessorCount ? 8 : 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) {
  return last_error;
}

const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in";
}

const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}

/* ---- streams and events ---- */

struct event {
  uint64_t recorded; /* how many were recorded before, and it; 0: never */
  bool asked;
};

static uint64_t recorded_events, waited_for;

cudaError_t cudaDeviceSynchronize(void) {
  waited_for = recorded_events;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return cudaDeviceSynchronize();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  *out = malloc(1);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *out) {
  *out = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
  *out = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

/* Both leave what else they would tell of a capture as it is: there is none. */
cudaError_t capture_info_2(cudaStream_t stream, enum cudaStreamCaptureStatus *out) UNDER(cudaStreamGetCaptureInfo_v2);
cudaError_t capture_info_2(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
  return cudaStreamIsCapturing(stream, out);
}

cudaError_t capture_info_3(cudaStream_t stream, enum cudaStreamCaptureStatus *out) UNDER(cudaStreamGetCaptureInfo_v3);
cudaError_t capture_info_3(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
  return cudaStreamIsCapturing(stream, out);
}

cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *out) UNDER(cudaStreamGetCaptureInfo);
cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *out) {
  return cudaStreamIsCapturing(stream, out);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  *out = calloc(1, sizeof(struct event));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  *(struct event *)handle = (struct event){.recorded = ++recorded_events};
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(handle, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  struct event *event = (struct event *)handle;
  if (event->recorded <= waited_for || event->asked)
    return cudaSuccess;
  event->asked = true;
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  ((struct event *)handle)->asked = true;
  return cudaSuccess;
}

/* ---- kernels, copies ---- */

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *function, void **arguments) {
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function) {
  memset(out, 0, sizeof(*out));
  out->maxThreadsPerBlock = 1024;
  out->binaryVersion = out->ptxVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *function, int threads,
                                                                   size_t shared, unsigned flags) {
  *out = 2;
  return cudaSuccess;
}

/* What the compiler's code calls. */

static _Thread_local struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} launch;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  launch.grid = grid;
  launch.block = block;
  launch.shared = shared;
  launch.stream = stream;
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = launch.grid;
  *block = launch.block;
  *shared = launch.shared;
  *(void **)stream = launch.stream;
  return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary) {
  static void *handle;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) {}

void __cudaUnregisterFatBinary(void **handle) {}

void __cudaRegisterFunction(void) {}

void __cudaRegisterVar(void) {}

char __cudaInitModule(void **handle) {
  return 1;
}

cudaError_t __cudaGetKernel(void **kernel, const void *function) {
  *kernel = (void *)function;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
  return cudaSuccess;
}

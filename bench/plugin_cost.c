/*
 * What one event costs the training process: an allocator event through the public API, an NVTX push+pop through NVTX's
 * own headers and the plugin's handlers, as a library in the process would do it, and what CUPTI hands over, played by
 * the tests' fake of it: the callbacks around a launch, and the records of kernels.
 *
 *   plugin_cost [threads]        1, 2, … up to threads at once (default: the machine's processors)
 *   plugin_cost count NAME N     does one of them N times and nothing else, for bench/instructions
 *
 * Bursts with pauses between them, as training makes them: a burst stays within the segments that are kept ready.
 * The median of all bursts of all threads counts. At the end the log is read back: lost must be 0, else the figures
 * are those of losing events.
 */
#include "plugin/shardledger.h"
#include "storage/log/log_reader.h"
#include "tests/fakes/fake_cupti.h"

#include <nvtx3/nvToolsExt.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BURSTS 51
#define BURST_EVENTS 4000
#define PAUSE_US 4000
#define THREADS_MAX 64

typedef void measured(nvtxDomainHandle_t domain, int device, int index);

struct worker {
  pthread_t thread;
  pthread_barrier_t *barrier;
  measured *body;
  int device; /* each thread has one of its own, as the allocator's lock is per device */
  double *ns; /* BURSTS of them */
};

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void clock_only(nvtxDomainHandle_t domain, int device, int index) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
}

static void allocator_event(nvtxDomainHandle_t domain, int device, int index) {
  sl_allocator_event(device, 1, 0x7f0000000000u + (uint64_t)index * 512, 512, 0, 0, 0);
}

static void push_pop(nvtxDomainHandle_t domain, int device, int index) {
  nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                      .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                      .category = 2,
                                      .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                      .payload.ullValue = (uint64_t)index,
                                      .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                      .message.ascii = "layers.12.self_attention"};
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxDomainRangePop(domain);
}

/* The same by the plugin's own functions, as the torch bridge and the companion call them. */
static void direct_push_pop(nvtxDomainHandle_t domain, int device, int index) {
  sl_range_push(2, "layers.12.self_attention", (uint64_t)index);
  sl_range_pop();
}

/* ---- what CUPTI hands over ---- */

static struct {
  __typeof__(&fake_cupti) state;
  __typeof__(&fake_cupti_play) play;
  __typeof__(&fake_cupti_request) request;
  __typeof__(&fake_cupti_complete) complete;
} cupti;

static const char nccl_kernel[] = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";

static void launch(const char *kernel, int index) {
  CUresult result = CUDA_SUCCESS;
  CUpti_CallbackData data = {.callbackSite = CUPTI_API_ENTER,
                             .functionReturnValue = &result,
                             .symbolName = kernel,
                             .correlationId = (uint32_t)index};
  cupti.play(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &data);
  data.callbackSite = CUPTI_API_EXIT;
  cupti.play(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &data);
}

static void launch_of_nccl(nvtxDomainHandle_t domain, int device, int index) {
  launch(nccl_kernel, index);
}

static void launch_of_others(nvtxDomainHandle_t domain, int device, int index) {
  launch("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", index);
}

/* Records come by the buffer: one of them stands for as many calls. */
static void kernel_records(const char *name, int index) {
  static __thread uint8_t *buffer;
  static __thread size_t size, used;
  if (!buffer)
    cupti.request(&buffer, &size);
  if (!buffer)
    return;
  CUpti_ActivityKernel10 *record = (CUpti_ActivityKernel10 *)(void *)(buffer + used);
  record->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record->name = name;
  record->start = 1000;
  record->end = 2000;
  record->correlationId = (uint32_t)index;
  used += sizeof(*record);
  if (size - used >= sizeof(*record) && index != BURST_EVENTS - 1)
    return;
  cupti.complete(buffer, size, used);
  buffer = NULL;
  used = 0;
}

static void kernel_of_nccl(nvtxDomainHandle_t domain, int device, int index) {
  kernel_records(nccl_kernel, index);
}

static void kernel_of_others(nvtxDomainHandle_t domain, int device, int index) {
  kernel_records("void at::native::vectorized_elementwise_kernel<4>(int)", index);
}

static void load_cupti(void) {
  void *fake = dlopen(FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL), *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (!fake || !plugin) {
    fprintf(stderr, "plugin_cost: %s\n", dlerror());
    exit(1);
  }
  *(void **)&cupti.state = dlsym(fake, "fake_cupti");
  *(void **)&cupti.play = dlsym(fake, "fake_cupti_play");
  *(void **)&cupti.request = dlsym(fake, "fake_cupti_request");
  *(void **)&cupti.complete = dlsym(fake, "fake_cupti_complete");
  cupti.state()->record_bytes[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] = sizeof(CUpti_ActivityKernel10);
  int (*initialize)(void);
  *(void **)&initialize = dlsym(plugin, "InitializeInjection");
  initialize();
}

static const struct {
  const char *name;
  measured *body;
} all[] = {
    {"clock_gettime", clock_only},
    {"sl_allocator_event", allocator_event},
    {"nvtx push+pop", push_pop},
    {"push+pop without NVTX", direct_push_pop},
    {"launch of NCCL, two callbacks", launch_of_nccl},
    {"launch of others, two callbacks", launch_of_others},
    {"kernel record of NCCL", kernel_of_nccl},
    {"kernel record of others", kernel_of_others},
};
#define ALL (sizeof(all) / sizeof(*all))

static void *work(void *argument) {
  struct worker *worker = argument;
  nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
  for (int burst = 0; burst < BURSTS; burst++) {
    pthread_barrier_wait(worker->barrier);
    double start = now_ns();
    for (int i = 0; i < BURST_EVENTS; i++)
      worker->body(domain, worker->device, i);
    worker->ns[burst] = (now_ns() - start) / BURST_EVENTS;
    usleep(PAUSE_US);
  }
  return NULL;
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static void measure(const char *name, measured *body, int threads) {
  static double ns[THREADS_MAX * BURSTS];
  struct worker workers[THREADS_MAX];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) {
    workers[i] = (struct worker){.barrier = &barrier, .body = body, .device = i, .ns = ns + i * BURSTS};
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
      exit(1);
  }
  for (int i = 0; i < threads; i++)
    pthread_join(workers[i].thread, NULL);
  const int count = threads * BURSTS;
  qsort(ns, (size_t)count, sizeof(*ns), compare);
  printf("%-32s %2d threads  median %6.1f ns  best %6.1f  worst tenth %6.1f\n", name, threads, ns[count / 2], ns[0],
         ns[count * 9 / 10]);
}

static void print_machine(void) {
  char host[64] = "", line[256], cpu[200] = "unknown processor";
  gethostname(host, sizeof(host) - 1);
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file && fgets(line, sizeof(line), file))
    if (sscanf(line, "model name : %199[^\n]", cpu) == 1)
      break;
  if (file)
    fclose(file);
  printf("%s: %s, %ld processors\n", host, cpu, sysconf(_SC_NPROCESSORS_ONLN));
}

static int print_log(const char *directory) {
  struct sl_log *log;
  struct sl_error error;
  struct sl_event event;
  struct sl_log_counts counts;
  if (sl_log_open(directory, &log, &error) < 0) {
    fprintf(stderr, "plugin_cost: %s\n", error.text);
    return 1;
  }
  double start = now_ns();
  while (sl_log_next(log, &event, &error) == 1)
    ;
  double ns = now_ns() - start;
  sl_log_counts(log, &counts);
  printf("%s: %llu events, %llu lost, %.1f bytes an event, read at %.1f million events/s\n", directory,
         (unsigned long long)counts.events, (unsigned long long)counts.lost,
         (double)counts.bytes / (double)counts.events, (double)counts.events / ns * 1e3);
  sl_log_close(log);
  return 0;
}

static int count(const char *name, int times) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
  for (size_t i = 0; i < ALL; i++)
    if (strcmp(all[i].name, name) == 0) {
      for (int n = 0; n < times; n++)
        all[i].body(domain, 0, n);
      return 0;
    }
  fprintf(stderr, "plugin_cost: nothing is named '%s'\n", name);
  return 2;
}

int main(int argc, char **argv) {
  bool counts = argc == 4 && strcmp(argv[1], "count") == 0;
  int most = argc > 1 && !counts ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (most < 1 || most > THREADS_MAX || (argc > 2 && !counts)) {
    fprintf(stderr, "usage: plugin_cost [threads, 1 to %d], or plugin_cost count NAME TIMES\n", THREADS_MAX);
    return 2;
  }
  char directory[] = "/tmp/shardledger-bench-XXXXXX";
  if (!mkdtemp(directory))
    return 1;
  setenv("SHARDLEDGER_DIR", directory, 0);
  setenv("SHARDLEDGER_PYTHON", "off", 1);
  setenv("NVTX_INJECTION64_PATH", PLUGIN, 1);
  load_cupti();
  if (counts)
    return count(argv[2], atoi(argv[3]));
  print_machine();
  for (int threads = 1; threads <= most; threads *= 2)
    for (size_t i = 0; i < ALL; i++)
      measure(all[i].name, all[i].body, threads);
  return print_log(sl_directory());
}

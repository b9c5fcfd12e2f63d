/*
 * What one event costs the training process: an allocator event through the public API, and an NVTX push+pop through
 * NVTX's own headers and the plugin's handlers, as a library in the process would do it.
 *
 *   plugin_cost [threads]        1, 2, … up to threads at once (default: the machine's processors)
 *
 * Bursts with pauses between them, as training makes them: a burst stays within the segments that are kept ready.
 * The median of all bursts of all threads counts. At the end the log is read back: lost must be 0, else the figures
 * are those of losing events.
 */
#include "shardledger.h"
#include "storage/log_reader.h"

#include <nvtx3/nvToolsExt.h>

#include <pthread.h>
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
  printf("%-24s %2d threads  median %6.1f ns  best %6.1f  worst tenth %6.1f\n", name, threads, ns[count / 2], ns[0],
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

int main(int argc, char **argv) {
  int most = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (most < 1 || most > THREADS_MAX) {
    fprintf(stderr, "usage: plugin_cost [threads, 1 to %d]\n", THREADS_MAX);
    return 2;
  }
  char directory[] = "/tmp/shardledger-bench-XXXXXX";
  if (!mkdtemp(directory))
    return 1;
  setenv("SHARDLEDGER_DIR", directory, 0);
  setenv("NVTX_INJECTION64_PATH", PLUGIN, 1);
  print_machine();
  for (int threads = 1; threads <= most; threads *= 2) {
    measure("clock_gettime", clock_only, threads);
    measure("sl_allocator_event", allocator_event, threads);
    measure("nvtx push+pop", push_pop, threads);
  }
  return print_log(sl_directory());
}

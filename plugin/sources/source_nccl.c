/*
 * Capture source nccl_profiler: NCCL's profiler plugin, versions 1 to 6 of its interface (NCCL 2.23 and later).
 *
 * It tells what the ranges lack: datatype, algorithm, protocol, buffers, and each communicator's size and name. Only
 * collectives and point-to-point operations are asked for, so that NCCL adds no proxy or kernel events of its own. No
 * handle is ever given out: NCCL then has nothing to call back with, and nothing of ours can outlive its use.
 * Descriptors are read during the call and never kept.
 *
 * The structs below are NCCL's interface in our words, as far as they are read. Newer NCCL loads older versions too,
 * and takes the newest that a library has.
 */
#include "plugin/log/event_log.h"
#include "plugin/log/thread_state.h"
#include "plugin/process/config.h"
#include "plugin/shardledger.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NAME "nccl_profiler"

enum { RESULT_SUCCESS = 0 };                  /* ncclSuccess */
enum { EVENT_COLLECTIVE = 2, EVENT_P2P = 4 }; /* of the mask, and types of descriptors */

/* ---- communicators ---- */

#define CONTEXTS 512u

/* What init hands to NCCL and startEvent gets back. Kept for good: one of a destroyed communicator is as good as
 * before. */
static struct context { uint64_t communicator; } contexts[CONTEXTS];
static _Atomic uint32_t context_count;
static struct context others; /* for versions that name the communicator in each event, and for more than fit */

static int begin(void **context, int *mask, const char *version, uint64_t communicator, const char *name, int ranks,
                 int rank) {
  static atomic_flag reported = ATOMIC_FLAG_INIT;
  sl_log_init();
  if (context)
    *context = &others;
  if (!mask || !context)
    return RESULT_SUCCESS;
  if (strcmp(sl_option_text(SL_OPTION_nccl), "off") == 0) {
    *mask = 0;
    return RESULT_SUCCESS;
  }
  *mask = EVENT_COLLECTIVE | EVENT_P2P;
  if (!atomic_flag_test_and_set(&reported))
    sl_source_state(NAME, "on", version);
  if (!communicator)
    return RESULT_SUCCESS;
  uint32_t number = atomic_fetch_add(&context_count, 1);
  if (number < CONTEXTS) {
    contexts[number].communicator = communicator;
    *context = &contexts[number];
  }
  struct sl_event_nccl_communicator event = {
      .communicator = communicator, .ranks = (uint32_t)ranks, .rank = (uint32_t)rank, .name = sl_log_name(name)};
  sl_log_append(SL_EVENT_nccl_communicator, &event, sizeof(event), NULL, 0);
  return RESULT_SUCCESS;
}

static uint64_t communicator_of(const void *context) {
  return context ? ((const struct context *)context)->communicator : 0;
}

static void record(const struct sl_event_nccl_call *event) {
  if (event->function)
    sl_log_append(SL_EVENT_nccl_call, event, sizeof(*event), NULL, 0);
}

/* ---- version 1: functions, types and algorithms are numbers ---- */

static uint32_t number_name(const char *const *names, size_t count, uint8_t number) {
  return number < count ? sl_log_name(names[number]) : 0;
}
#define NUMBER_NAME(names, number) number_name(names, sizeof(names) / sizeof(*(names)), number)

static const char *const functions[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                        "AllReduce", "SendRecv", "Send",      "Recv"};
static const char *const datatypes[] = {"ncclInt8",   "ncclUint8",   "ncclInt32",   "ncclUint32",  "ncclInt64",
                                        "ncclUint64", "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16"};
static const char *const algorithms[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
static const char *const protocols[] = {"LL", "LL128", "SIMPLE"};

struct collective_v1 {
  const char *communicator_name;
  uint64_t communicator;
  uint64_t sequence;
  uint8_t function;
  const void *send;
  void *receive;
  size_t count;
  int root;
  uint8_t datatype;
  uint32_t operation;
  size_t traffic_bytes;
  uint8_t channels;
  uint8_t warps;
  uint8_t algorithm;
  uint8_t protocol;
};
struct p2p_v1 {
  const char *communicator_name;
  uint64_t communicator;
  uint8_t function;
  void *buffer;
  uint8_t datatype;
  size_t count;
  int peer;
};

/* ---- versions 2 to 6: as words ---- */

struct collective_v2 {
  const char *communicator_name;
  uint64_t communicator;
  uint64_t sequence;
  const char *function;
  const void *send;
  void *receive;
  size_t count;
  int root;
  const char *datatype;
  size_t traffic_bytes;
  uint8_t channels;
  uint8_t warps;
  const char *algorithm;
  const char *protocol;
};
struct collective_v3 {
  const char *communicator_name;
  uint64_t communicator;
  uint64_t sequence;
  const char *function;
  const void *send;
  void *receive;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels;
  uint8_t warps;
  const char *algorithm;
  const char *protocol;
};
struct p2p_v2 {
  const char *communicator_name;
  uint64_t communicator;
  const char *function;
  void *buffer;
  const char *datatype;
  size_t count;
  int peer;
};
/* From here on the communicator is init's. */
struct collective_v4 {
  uint64_t sequence;
  const char *function;
  const void *send;
  void *receive;
  size_t count;
  int root;
  const char *datatype;
  uint8_t channels;
  uint8_t warps;
  const char *algorithm;
  const char *protocol;
};
struct p2p_v4 {
  const char *function;
  void *buffer;
  const char *datatype;
  size_t count;
  int peer;
  uint8_t channels;
};

/* One descriptor: type, parent, rank, then what the type says. */
#define DESCRIPTOR(version, type_of_type, collective_struct, p2p_struct)                                               \
  struct descriptor_v##version {                                                                                       \
    type_of_type type;                                                                                                 \
    void *parent;                                                                                                      \
    int rank;                                                                                                          \
    union {                                                                                                            \
      struct collective_struct collective;                                                                             \
      struct p2p_struct p2p;                                                                                           \
    };                                                                                                                 \
  };                                                                                                                   \
  _Static_assert(offsetof(struct descriptor_v##version, collective) == 24, "NCCL's layout on 64-bit Linux")
DESCRIPTOR(1, uint8_t, collective_v1, p2p_v1);
DESCRIPTOR(2, uint8_t, collective_v2, p2p_v2);
DESCRIPTOR(3, uint8_t, collective_v3, p2p_v2);
DESCRIPTOR(4, uint8_t, collective_v4, p2p_v4);
DESCRIPTOR(5, uint64_t, collective_v4, p2p_v4);

/* A p2p operation has one buffer: what a Recv fills, and what a Send reads. */
static void set_buffer(struct sl_event_nccl_call *event, const void *buffer, bool receives) {
  *(receives ? &event->receive : &event->send) = (uintptr_t)buffer;
}

#define WORD_NAME(names, word) sl_log_name(word)

static bool is_word_receive(const char *function) {
  return function && function[0] == 'R';
}

static bool is_number_receive(uint8_t function) {
  return function == 7;
}

/* How a version's descriptors name things, and what of them is a Recv; the last three expressions say where its
 * communicator and a p2p's channels are. */
#define START(version, name_of, is_receive, communicator_of_collective, communicator_of_p2p, channels_of_p2p)          \
  static int start_v##version(void *context, void **handle, void *descriptor) {                                        \
    const struct descriptor_v##version *d = descriptor;                                                                \
    if (handle)                                                                                                        \
      *handle = NULL;                                                                                                  \
    if (!d || (d->type != EVENT_COLLECTIVE && d->type != EVENT_P2P) || !sl_log_active())                               \
      return RESULT_SUCCESS;                                                                                           \
    struct sl_event_nccl_call event = {.point_to_point = d->type == EVENT_P2P};                                        \
    if (event.point_to_point) {                                                                                        \
      event.communicator = communicator_of_p2p;                                                                        \
      event.count = d->p2p.count;                                                                                      \
      event.function = name_of(functions, d->p2p.function);                                                            \
      event.datatype = name_of(datatypes, d->p2p.datatype);                                                            \
      event.root = (uint32_t)d->p2p.peer;                                                                              \
      event.channels = channels_of_p2p;                                                                                \
      set_buffer(&event, d->p2p.buffer, is_receive(d->p2p.function));                                                  \
    } else {                                                                                                           \
      event.communicator = communicator_of_collective;                                                                 \
      event.sequence = d->collective.sequence;                                                                         \
      event.count = d->collective.count;                                                                               \
      event.send = (uintptr_t)d->collective.send;                                                                      \
      event.receive = (uintptr_t)d->collective.receive;                                                                \
      event.function = name_of(functions, d->collective.function);                                                     \
      event.datatype = name_of(datatypes, d->collective.datatype);                                                     \
      event.algorithm = name_of(algorithms, d->collective.algorithm);                                                  \
      event.protocol = name_of(protocols, d->collective.protocol);                                                     \
      event.root = (uint32_t)d->collective.root;                                                                       \
      event.channels = d->collective.channels;                                                                         \
    }                                                                                                                  \
    record(&event);                                                                                                    \
    return RESULT_SUCCESS;                                                                                             \
  }
START(1, NUMBER_NAME, is_number_receive, d->collective.communicator, d->p2p.communicator, 0)
START(2, WORD_NAME, is_word_receive, d->collective.communicator, d->p2p.communicator, 0)
START(3, WORD_NAME, is_word_receive, d->collective.communicator, d->p2p.communicator, 0)
START(4, WORD_NAME, is_word_receive, communicator_of(context), communicator_of(context), d->p2p.channels)
START(5, WORD_NAME, is_word_receive, communicator_of(context), communicator_of(context), d->p2p.channels)

/* ---- the rest: nothing to do ---- */

static int stop(void *handle) {
  return RESULT_SUCCESS;
}
static int record_state(void *handle, int state, void *arguments) {
  return RESULT_SUCCESS;
}
static int finalize(void *context) {
  return RESULT_SUCCESS;
}

static int init_v1(void **context, int *mask) {
  return begin(context, mask, "version 1", 0, NULL, 0, 0);
}
static int init_v2(void **context, int *mask) {
  return begin(context, mask, "version 2", 0, NULL, 0, 0);
}
static int init_v3(void **context, int *mask) {
  return begin(context, mask, "version 3", 0, NULL, 0, 0);
}
static int init_v4(void **context, int *mask, const char *name, uint64_t communicator, int nodes, int ranks, int rank,
                   void *log) {
  return begin(context, mask, "version 4", communicator, name, ranks, rank);
}
static int init_v5(void **context, uint64_t communicator, int *mask, const char *name, int nodes, int ranks, int rank,
                   void *log) {
  return begin(context, mask, "version 5", communicator, name, ranks, rank);
}
static int init_v6(void **context, uint64_t communicator, int *mask, const char *name, int nodes, int ranks, int rank,
                   void *log) {
  return begin(context, mask, "version 6", communicator, name, ranks, rank);
}

/* The symbols that NCCL looks up, writable as it declares them; only init's arguments differ. Version 6 describes these
 * two events as version 5 does.
 */
#define PROFILER(version, start, ...)                                                                                  \
  SL_API struct profiler_v##version {                                                                                  \
    const char *name;                                                                                                  \
    int (*init)(__VA_ARGS__);                                                                                          \
    int (*start_event)(void *context, void **handle, void *descriptor);                                                \
    int (*stop_event)(void *handle);                                                                                   \
    int (*record_event_state)(void *handle, int state, void *arguments);                                               \
    int (*finalize)(void *context);                                                                                    \
  } ncclProfiler_v##version = {"ShardLedger", init_v##version, start, stop, record_state, finalize}
PROFILER(1, start_v1, void **, int *);
PROFILER(2, start_v2, void **, int *);
PROFILER(3, start_v3, void **, int *);
PROFILER(4, start_v4, void **, int *, const char *, uint64_t, int, int, int, void *);
PROFILER(5, start_v5, void **, uint64_t, int *, const char *, int, int, int, void *);
PROFILER(6, start_v5, void **, uint64_t, int *, const char *, int, int, int, void *);

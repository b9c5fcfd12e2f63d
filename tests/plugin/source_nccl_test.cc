/*
 * NCCL's profiler interface, driven as NCCL drives it: the structs here are laid out by NCCL's own headers
 * (src/include/plugin/profiler/profiler_v1.h … v6.h), apart from the plugin's.
 */
#include "plugin/cupti_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>

namespace {

constexpr int kGroup = 1, kCollective = 2, kP2p = 4, kProxyOp = 8;
constexpr uint64_t kHash = 0x123456789abcdef0;

void *const kSend = reinterpret_cast<void *>(0x7000);
void *const kReceive = reinterpret_cast<void *>(0x8000);

/* The last members of a descriptor that NCCL makes larger than we read. */
struct ProxyOp {
  pid_t pid;
  uint8_t channel;
  int peer, steps, chunk, is_send;
};

struct V1 {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t commHash, seqNumber;
      uint8_t func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      uint8_t datatype;
      uint32_t op;
      size_t trafficBytes;
      uint8_t nMaxChannels, nWarps, algo, proto;
      int isCollnet, isNvls;
    } coll;
    struct {
      const char *name;
      uint64_t commHash;
      uint8_t func;
      void *buff;
      uint8_t datatype;
      size_t count;
      int peer;
    } p2p;
    ProxyOp proxyOp;
  };
};
struct V2 {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t commHash, seqNumber;
      const char *func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      size_t trafficBytes;
      uint8_t nMaxChannels, nWarps;
      const char *algo, *proto;
    } coll;
    struct {
      const char *name;
      uint64_t commHash;
      const char *func;
      void *buff;
      const char *datatype;
      size_t count;
      int peer;
    } p2p;
    ProxyOp proxyOp;
  };
};
struct V3 {
  uint8_t type;
  void *parentObj;
  int rank;
  union {
    struct {
      const char *name;
      uint64_t commHash, seqNumber;
      const char *func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      uint8_t nMaxChannels, nWarps;
      const char *algo, *proto;
    } coll;
    struct {
      const char *name;
      uint64_t commHash;
      const char *func;
      void *buff;
      const char *datatype;
      size_t count;
      int peer;
    } p2p;
    ProxyOp proxyOp;
  };
};
template <class Type> struct Worded { /* version 4, and 5 and 6 with a wider type */
  Type type;
  void *parentObj;
  int rank;
  union {
    struct {
      uint64_t seqNumber;
      const char *func;
      void const *sendBuff;
      void *recvBuff;
      size_t count;
      int root;
      const char *datatype;
      uint8_t nChannels, nWarps;
      const char *algo, *proto;
      void *parentGroup;
    } coll;
    struct {
      const char *func;
      void *buff;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t nChannels;
      void *parentGroup;
    } p2p;
    ProxyOp proxyOp;
  };
};
using V4 = Worded<uint8_t>;
using V5 = Worded<uint64_t>;

struct Profiler {
  const char *name;
  void *init;
  int (*startEvent)(void *context, void **handle, void *descriptor);
  int (*stopEvent)(void *handle);
  int (*recordEventState)(void *handle, int state, void *arguments);
  int (*finalize)(void *context);
};

Profiler *profiler(int version) {
  void *plugin = dlopen(PLUGIN, RTLD_NOW);
  return plugin ? static_cast<Profiler *>(dlsym(plugin, ("ncclProfiler_v" + std::to_string(version)).c_str()))
                : nullptr;
}

/* Calls a version's init as NCCL does; returns the mask. */
int init(int version, void **context, const char *name = "data", uint64_t hash = kHash) {
  void *function = profiler(version)->init;
  int mask = -1, r;
  if (version <= 3)
    r = reinterpret_cast<int (*)(void **, int *)>(function)(context, &mask);
  else if (version == 4)
    r = reinterpret_cast<int (*)(void **, int *, const char *, uint64_t, int, int, int, void *)>(function)(
        context, &mask, name, hash, 1, 8, 3, nullptr);
  else
    r = reinterpret_cast<int (*)(void **, uint64_t, int *, const char *, int, int, int, void *)>(function)(
        context, hash, &mask, name, 1, 8, 3, nullptr);
  EXPECT_EQ(r, 0);
  return mask;
}

/* An event's whole life. A handle would be a way for NCCL to reach freed memory: none may come. */
void event(int version, void *context, void *descriptor) {
  void *handle = &handle;
  EXPECT_EQ(profiler(version)->startEvent(context, &handle, descriptor), 0);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(profiler(version)->recordEventState(handle, 9, nullptr), 0);
  EXPECT_EQ(profiler(version)->stopEvent(handle), 0);
}

template <class Descriptor> Descriptor worded_collective() {
  Descriptor d = {};
  d.type = kCollective;
  d.coll.seqNumber = 12;
  d.coll.func = "ReduceScatter";
  d.coll.sendBuff = kSend;
  d.coll.recvBuff = kReceive;
  d.coll.count = 4096;
  d.coll.root = 2;
  d.coll.datatype = "ncclBfloat16";
  d.coll.algo = "NVLS";
  d.coll.proto = "SIMPLE";
  return d;
}
template <class Descriptor> Descriptor worded_receive() {
  Descriptor d = {};
  d.type = kP2p;
  d.p2p.func = "Recv";
  d.p2p.buff = kReceive;
  d.p2p.datatype = "ncclInt8";
  d.p2p.count = 77;
  d.p2p.peer = 5;
  return d;
}

/* One collective and one receive, as a version describes them. */
void play(int version) {
  void *context = nullptr;
  EXPECT_EQ(init(version, &context), kCollective | kP2p);
  EXPECT_NE(context, nullptr) << "NCCL calls finalize only with a context";
  if (version == 1) {
    V1 collective = {}, receive = {};
    collective.type = kCollective;
    collective.coll = {"data", kHash, 12, 3, kSend, kReceive, 4096, 2, 9, 0, 1 << 20, 16, 8, 4, 2, 0, 0};
    receive.type = kP2p;
    receive.p2p = {"data", kHash, 7, kReceive, 0, 77, 5};
    event(version, context, &collective);
    event(version, context, &receive);
  } else if (version == 2 || version == 3) {
    auto both = [&](auto collective, auto receive) {
      collective.coll.commHash = receive.p2p.commHash = kHash;
      collective.coll.nMaxChannels = 16;
      event(version, context, &collective);
      event(version, context, &receive);
    };
    if (version == 2)
      both(worded_collective<V2>(), worded_receive<V2>());
    else
      both(worded_collective<V3>(), worded_receive<V3>());
  } else {
    auto both = [&](auto collective, auto receive) {
      collective.coll.nChannels = 16;
      receive.p2p.nChannels = 4;
      event(version, context, &collective);
      event(version, context, &receive);
    };
    if (version == 4)
      both(worded_collective<V4>(), worded_receive<V4>());
    else
      both(worded_collective<V5>(), worded_receive<V5>());
  }
  EXPECT_EQ(profiler(version)->finalize(context), 0);
}

class EveryVersion : public testing::TestWithParam<int> {};

TEST_P(EveryVersion, CollectivesAndPointToPointOperationsAreRecorded) {
  Recording log = record({}, [] { play(GetParam()); });
  EXPECT_EQ(log.status, 0);
  auto calls = ALL(log, nccl_call);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].communicator, kHash);
  EXPECT_EQ(calls[0].sequence, 12u);
  EXPECT_EQ(calls[0].count, 4096u);
  EXPECT_EQ(calls[0].send, 0x7000u);
  EXPECT_EQ(calls[0].receive, 0x8000u);
  EXPECT_EQ(calls[0].root, 2u);
  EXPECT_EQ(calls[0].channels, 16u);
  EXPECT_EQ(calls[0].point_to_point, 0u);
  EXPECT_EQ(log.name(calls[0].function), "ReduceScatter");
  EXPECT_EQ(log.name(calls[0].datatype), "ncclBfloat16");
  EXPECT_EQ(log.name(calls[0].algorithm), "NVLS");
  EXPECT_EQ(log.name(calls[0].protocol), "SIMPLE");
  EXPECT_EQ(calls[1].communicator, kHash);
  EXPECT_EQ(calls[1].count, 77u);
  EXPECT_EQ(calls[1].send, 0u);
  EXPECT_EQ(calls[1].receive, 0x8000u);
  EXPECT_EQ(calls[1].root, 5u) << "the peer";
  EXPECT_EQ(calls[1].channels, GetParam() >= 4 ? 4u : 0u);
  EXPECT_EQ(calls[1].point_to_point, 1u);
  EXPECT_EQ(log.name(calls[1].function), "Recv");
  EXPECT_EQ(log.name(calls[1].datatype), "ncclInt8");
  EXPECT_EQ(log.state("nccl_profiler"), "on: version " + std::to_string(GetParam()));
}

TEST_P(EveryVersion, OtherEventsAndMissingArgumentsAreNothing) {
  Recording log = record({}, [] {
    void *context = nullptr;
    init(GetParam(), &context);
    for (int type : {0, kGroup, kProxyOp, 255}) {
      alignas(8) uint8_t descriptor[256] = {static_cast<uint8_t>(type)};
      event(GetParam(), context, descriptor);
      event(GetParam(), nullptr, descriptor);
    }
    EXPECT_EQ(profiler(GetParam())->startEvent(context, nullptr, nullptr), 0);
    alignas(8) uint8_t nameless[256] = {kCollective};
    if (GetParam() > 1) /* in version 1 a function is a number, and 0 is one */
      event(GetParam(), nullptr, nameless);
    EXPECT_EQ(profiler(GetParam())->finalize(nullptr), 0);
  });
  EXPECT_EQ(log.status, 0);
  EXPECT_TRUE(ALL(log, nccl_call).empty());
}

INSTANTIATE_TEST_SUITE_P(SourceNccl, EveryVersion, testing::Range(1, 7));

TEST(SourceNccl, CommunicatorsHaveTheirSizeAndTheCallsTheirOwnCommunicator) {
  Recording log = record({}, [] {
    void *one = nullptr, *other = nullptr;
    init(5, &one, "data", 11);
    init(5, &other, nullptr, 22);
    V5 collective = worded_collective<V5>();
    event(5, other, &collective);
    event(5, one, &collective);
  });
  auto communicators = ALL(log, nccl_communicator);
  ASSERT_EQ(communicators.size(), 2u);
  EXPECT_EQ(communicators[0].communicator, 11u);
  EXPECT_EQ(communicators[0].ranks, 8u);
  EXPECT_EQ(communicators[0].rank, 3u);
  EXPECT_EQ(log.name(communicators[0].name), "data");
  EXPECT_EQ(communicators[1].name, 0u);
  auto calls = ALL(log, nccl_call);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].communicator, 22u);
  EXPECT_EQ(calls[1].communicator, 11u);
}

TEST(SourceNccl, MoreCommunicatorsThanFitLoseTheirIdAndNothingElse) {
  Recording log = record({}, [] {
    void *context = nullptr;
    for (int i = 0; i < 600; i++)
      init(4, &context, "many", i + 1);
    V4 collective = worded_collective<V4>();
    event(4, context, &collective);
  });
  EXPECT_EQ(log.status, 0);
  EXPECT_EQ(ALL(log, nccl_communicator).size(), 600u);
  ASSERT_EQ(ALL(log, nccl_call).size(), 1u);
  EXPECT_EQ(ALL(log, nccl_call)[0].communicator, 0u);
}

TEST(SourceNccl, NumbersThatVersionOneDoesNotNameAreNoCallOrNoWord) {
  Recording log = record({}, [] {
    void *context = nullptr;
    init(1, &context);
    V1 unknown = {};
    unknown.type = kCollective;
    unknown.coll.func = 200;
    event(1, context, &unknown);
    unknown.coll.func = 4;
    unknown.coll.datatype = unknown.coll.algo = unknown.coll.proto = 200;
    event(1, context, &unknown);
  });
  auto calls = ALL(log, nccl_call);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(log.name(calls[0].function), "AllReduce");
  EXPECT_EQ(calls[0].datatype, 0u);
  EXPECT_EQ(calls[0].algorithm, 0u);
}

TEST(SourceNccl, SwitchedOffItAsksForNoEvents) {
  Recording log = record({{"SHARDLEDGER_NCCL", "off"}}, [] {
    void *context = nullptr;
    EXPECT_EQ(init(5, &context), 0);
  });
  EXPECT_EQ(log.status, 0);
  EXPECT_TRUE(log.events.empty());
}

TEST(SourceNccl, AttachingNamesThePluginToNcclUnlessAnotherIsNamedOrItIsOff) {
  auto expect = [](const char *expected, const Environment &environment) {
    Recording log = record(environment, [&] {
      CuptiProcess process;
      const char *plugin = getenv("NCCL_PROFILER_PLUGIN");
      EXPECT_STREQ(plugin ? plugin : "", expected);
    });
    EXPECT_EQ(log.status, 0) << expected;
  };
  char *real = realpath(PLUGIN, nullptr);
  expect(real, {});
  expect(real, {{"NCCL_PROFILER_PLUGIN", real}});
  expect("", {{"SHARDLEDGER_NCCL", "off"}});
  expect("libother.so", {{"NCCL_PROFILER_PLUGIN", "libother.so"}});
  free(real);
}

} // namespace

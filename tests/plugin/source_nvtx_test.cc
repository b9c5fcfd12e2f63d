/* Two real copies of NVTX in one process, attached to the real plugin, as libtorch and libnccl are. */
#include "fakes/nvtx_library.h"
#include "plugin/recorded.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <set>
#include <thread>

static const nvtx_library *load(const char *path, const char *name) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    exit(1);
  }
  return reinterpret_cast<const nvtx_library *(*)()>(dlsym(library, name))();
}

static const nvtx_library *alpha() {
  return load(NVTX_ALPHA, "alpha");
}

static const nvtx_library *beta() {
  return load(NVTX_BETA, "beta");
}

static Recording record_nvtx(const std::function<void()> &body) {
  return record({{"NVTX_INJECTION64_PATH", PLUGIN}}, body);
}

static nvtxEventAttributes_t attributes(const char *message) {
  nvtxEventAttributes_t out = {};
  out.version = NVTX_VERSION;
  out.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  out.messageType = message ? NVTX_MESSAGE_TYPE_ASCII : NVTX_MESSAGE_UNKNOWN;
  out.message.ascii = message;
  return out;
}

TEST(SourceNvtx, PushAndPopAnswerTheLevelAndAnUnderflowIsNegativeAndUnrecorded) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    EXPECT_LT(nvtx->RangePop(), 0);
    EXPECT_EQ(nvtx->RangePushA("outer"), 0);
    EXPECT_EQ(nvtx->RangePushA("inner"), 1);
    EXPECT_EQ(nvtx->RangePop(), 1);
    EXPECT_EQ(nvtx->RangePop(), 0);
    EXPECT_LT(nvtx->RangePop(), 0);
    EXPECT_EQ(nvtx->RangePushA("next"), 0);
  });
  auto pushes = ALL(log, range_push);
  auto pops = ALL(log, range_pop);
  ASSERT_EQ(pushes.size(), 3u);
  EXPECT_EQ(log.name(pushes[0].name), "outer");
  EXPECT_EQ(log.name(pushes[1].name), "inner");
  EXPECT_EQ(log.name(pushes[2].name), "next");
  EXPECT_EQ(pushes[0].domain, 0);
  ASSERT_EQ(pops.size(), 2u);
  EXPECT_EQ(pops[0].depth, 1u);
  EXPECT_EQ(pops[1].depth, 0u);
  EXPECT_EQ(log.state("nvtx"), "on: ");
}

TEST(SourceNvtx, RangesOfTwoLibrariesNestOnOneThread) {
  Recording log = record_nvtx([] {
    const nvtx_library *a = alpha(), *b = beta();
    ASSERT_NE(a->RangePushA, b->RangePushA); /* two copies of NVTX indeed */
    EXPECT_EQ(a->RangePushA("torch"), 0);
    EXPECT_EQ(b->RangePushA("nccl"), 1);
    EXPECT_EQ(b->RangePop(), 1);
    EXPECT_EQ(a->RangePop(), 0);
  });
  EXPECT_EQ(log.of(SL_EVENT_range_push).size(), 2u);
  EXPECT_EQ(log.of(SL_EVENT_range_pop).size(), 2u);
}

TEST(SourceNvtx, EachDomainAndThreadHasItsOwnStack) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    nvtxDomainHandle_t one = nvtx->DomainCreateA("one"), two = nvtx->DomainCreateW(L"two");
    nvtxEventAttributes_t range = attributes("range");
    EXPECT_EQ(nvtx->DomainRangePushEx(one, &range), 0);
    EXPECT_EQ(nvtx->DomainRangePushEx(one, &range), 1);
    EXPECT_EQ(nvtx->DomainRangePushEx(two, &range), 0);
    EXPECT_EQ(nvtx->DomainRangePushEx(nullptr, &range), 0);
    std::thread([&] {
      EXPECT_LT(nvtx->DomainRangePop(one), 0);
      EXPECT_EQ(nvtx->DomainRangePushEx(one, &range), 0);
    }).join();
    EXPECT_EQ(nvtx->DomainRangePop(one), 1);
  });
  auto domains = ALL(log, nvtx_domain);
  ASSERT_EQ(domains.size(), 2u);
  EXPECT_EQ(log.name(domains[0].name), "one");
  EXPECT_EQ(log.name(domains[1].name), "two");
  std::multiset<uint16_t> used;
  for (const auto &push : ALL(log, range_push))
    used.insert(push.domain);
  EXPECT_EQ(used.count(static_cast<uint16_t>(domains[0].id)), 3u);
  EXPECT_EQ(used.count(static_cast<uint16_t>(domains[1].id)), 1u);
  EXPECT_EQ(used.count(0), 1u);
  ASSERT_EQ(ALL(log, range_pop).size(), 1u);
  EXPECT_EQ(ALL(log, range_pop)[0].domain, domains[0].id);
}

TEST(SourceNvtx, StartedRangesHaveUniqueIdsAndEndOnAnotherThread) {
  Recording log = record_nvtx([] {
    const nvtx_library *a = alpha(), *b = beta();
    nvtxDomainHandle_t domain = b->DomainCreateA("domain");
    nvtxEventAttributes_t range = attributes("three");
    std::vector<nvtxRangeId_t> ids = {a->RangeStartA("one"), b->RangeStartW(L"two"), a->RangeStartEx(&range),
                                      b->DomainRangeStartEx(domain, &range)};
    std::set<nvtxRangeId_t> unique(ids.begin(), ids.end());
    EXPECT_EQ(unique.size(), 4u);
    EXPECT_EQ(unique.count(0), 0u);
    std::thread([&] {
      a->RangeEnd(ids[0]);
      b->DomainRangeEnd(domain, ids[3]);
      a->RangeEnd(0); /* nothing that was ever started */
    }).join();
  });
  auto starts = log.of(SL_EVENT_range_start), ends = log.of(SL_EVENT_range_end);
  ASSERT_EQ(starts.size(), 4u);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[0].as<sl_event_range_end>().id, starts[0].as<sl_event_range_start>().id);
  EXPECT_EQ(ends[1].as<sl_event_range_end>().id, starts[3].as<sl_event_range_start>().id);
  EXPECT_NE(ends[0].thread, starts[0].thread);
}

TEST(SourceNvtx, StringsAreRecordedInEveryForm) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    nvtxDomainHandle_t domain = nvtx->DomainCreateA("NCCL");
    nvtxEventAttributes_t range = attributes(nullptr);
    nvtx->MarkA("plain");
    nvtx->MarkW(L"wide \u00e9\u20ac\U0001f600");
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = nvtx->DomainRegisterStringA(domain, "ncclAllGather");
    nvtx->DomainMarkEx(domain, &range);
    range.message.registered = nvtx->DomainRegisterStringW(domain, L"ncclReduceScatter");
    nvtx->DomainMarkEx(domain, &range);
    range.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    range.message.unicode = L"wide in attributes";
    nvtx->MarkEx(&range);
  });
  std::vector<std::string> names;
  for (const auto &mark : ALL(log, range_mark))
    names.push_back(log.name(mark.name));
  EXPECT_EQ(names, (std::vector<std::string>{"plain", "wide \u00e9\u20ac\U0001f600", "ncclAllGather",
                                             "ncclReduceScatter", "wide in attributes"}));
}

TEST(SourceNvtx, WideStringsThatAreNoTextBecomeText) {
  Recording log = record_nvtx([] {
    static const wchar_t surrogate[] = {L'a', 0xd800, 0x110000, L'b', 0};
    std::wstring endless(5000, L'\u20ac');
    alpha()->MarkW(surrogate);
    alpha()->MarkW(endless.c_str());
  });
  auto marks = ALL(log, range_mark);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(log.name(marks[0].name), "a\ufffd\ufffdb");
  std::string clipped = log.name(marks[1].name);
  EXPECT_GT(clipped.size(), 900u);
  EXPECT_EQ(clipped.size() % 3, 0u); /* no character is cut */
}

TEST(SourceNvtx, MissingAndForeignArgumentsAreRangesWithoutAName) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    EXPECT_EQ(nvtx->RangePushA(nullptr), 0);
    EXPECT_EQ(nvtx->RangePushW(nullptr), 1);
    EXPECT_EQ(nvtx->RangePushEx(nullptr), 2);
    nvtxEventAttributes_t range = attributes(nullptr);
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    EXPECT_EQ(nvtx->RangePushEx(&range), 3);
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = reinterpret_cast<nvtxStringHandle_t>(0x1234);
    EXPECT_EQ(nvtx->RangePushEx(&range), 4);
    range.messageType = 99;
    EXPECT_EQ(nvtx->RangePushEx(&range), 5);
  });
  auto pushes = ALL(log, range_push);
  ASSERT_EQ(pushes.size(), 6u);
  for (const auto &push : pushes)
    EXPECT_EQ(push.name, 0u);
}

TEST(SourceNvtx, FieldsBeyondTheStructsOwnSizeAreNotRead) {
  Recording log = record_nvtx([] {
    nvtxEventAttributes_t range = attributes("must not be read");
    range.category = 5;
    range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    range.payload.ullValue = 6;
    range.size = offsetof(nvtxEventAttributes_t, colorType);
    alpha()->MarkEx(&range);
    range.size = 0;
    alpha()->MarkEx(&range);
  });
  auto marks = ALL(log, range_mark);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].category, 5);
  EXPECT_EQ(marks[0].name, 0u);
  EXPECT_EQ(marks[0].value, 0u);
  EXPECT_EQ(marks[1].category, 0);
}

TEST(SourceNvtx, NumbersBecomeTheRangesValue) {
  Recording log = record_nvtx([] {
    nvtxEventAttributes_t range = attributes("value");
    auto mark = [&](int32_t type) {
      range.payloadType = type;
      alpha()->MarkEx(&range);
    };
    range.payload.ullValue = UINT64_MAX;
    mark(NVTX_PAYLOAD_TYPE_UNSIGNED_INT64);
    range.payload.llValue = -2;
    mark(NVTX_PAYLOAD_TYPE_INT64);
    range.payload.uiValue = 4000000000u;
    mark(NVTX_PAYLOAD_TYPE_UNSIGNED_INT32);
    range.payload.iValue = -3;
    mark(NVTX_PAYLOAD_TYPE_INT32);
    range.payload.dValue = -7.9;
    mark(NVTX_PAYLOAD_TYPE_DOUBLE);
    range.payload.dValue = NAN;
    mark(NVTX_PAYLOAD_TYPE_DOUBLE);
    range.payload.dValue = 1e300;
    mark(NVTX_PAYLOAD_TYPE_DOUBLE);
    range.payload.fValue = 2.5f;
    mark(NVTX_PAYLOAD_TYPE_FLOAT);
    mark(1234); /* unknown */
  });
  std::vector<int64_t> values;
  for (const auto &mark : ALL(log, range_mark))
    values.push_back(static_cast<int64_t>(mark.value));
  EXPECT_EQ(values, (std::vector<int64_t>{-1, -2, 4000000000, -3, -7, 0, 0, 2, 0}));
}

TEST(SourceNvtx, ACategoryThatHasNoRoomIsNone) {
  Recording log = record_nvtx([] {
    nvtxEventAttributes_t range = attributes("range");
    range.category = UINT16_MAX;
    alpha()->MarkEx(&range);
    range.category = UINT16_MAX + 1u;
    alpha()->MarkEx(&range);
  });
  auto marks = ALL(log, range_mark);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].category, UINT16_MAX);
  EXPECT_EQ(marks[1].category, 0);
}

TEST(SourceNvtx, ADomainIsOneForAllLibrariesThatMakeIt) {
  Recording log = record_nvtx([] {
    std::vector<std::thread> threads;
    std::atomic<nvtxDomainHandle_t> made{nullptr};
    std::atomic<int> waiting{4};
    for (int i = 0; i < 4; i++)
      threads.emplace_back([&, i] {
        const nvtx_library *nvtx = i % 2 ? alpha() : beta();
        for (waiting--; waiting > 0;)
          std::this_thread::yield();
        nvtxDomainHandle_t mine = nvtx->DomainCreateA("shardledger"), before = nullptr;
        EXPECT_TRUE(made.compare_exchange_strong(before, mine) || before == mine);
      });
    for (auto &thread : threads)
      thread.join();
    alpha()->DomainDestroy(made);
    nvtxEventAttributes_t range = attributes("step 0");
    beta()->DomainRangePushEx(made, &range);
  });
  auto domains = ALL(log, nvtx_domain);
  ASSERT_EQ(domains.size(), 1u); /* a reader knows our ranges by it */
  ASSERT_EQ(ALL(log, range_push).size(), 1u);
  EXPECT_EQ(ALL(log, range_push)[0].domain, domains[0].id);
}

TEST(SourceNvtx, DomainHandlesAreUniqueAndUsableAfterDestroy) {
  Recording log = record_nvtx([] {
    const nvtx_library *a = alpha(), *b = beta();
    nvtxDomainHandle_t first = a->DomainCreateA("first"), second = b->DomainCreateA("second");
    EXPECT_NE(first, nullptr);
    EXPECT_NE(first, second);
    a->DomainDestroy(first);
    a->DomainDestroy(first);
    nvtxEventAttributes_t range = attributes("late");
    EXPECT_EQ(a->DomainRangePushEx(first, &range), 0);
    EXPECT_EQ(a->DomainRangePop(first), 0);
    EXPECT_EQ(a->DomainCreateA("first"), first); /* and not one id more for every round */
    auto foreign = reinterpret_cast<nvtxDomainHandle_t>(&range);
    a->DomainMarkEx(foreign, &range);
    auto inside = reinterpret_cast<nvtxDomainHandle_t>(reinterpret_cast<char *>(first) + 1);
    a->DomainMarkEx(inside, &range);
    a->DomainDestroy(foreign);
    a->DomainDestroy(nullptr);
  });
  EXPECT_EQ(ALL(log, nvtx_domain).size(), 2u);
  auto pushes = ALL(log, range_push);
  ASSERT_EQ(pushes.size(), 1u);
  EXPECT_EQ(pushes[0].domain, ALL(log, nvtx_domain)[0].id);
  for (const auto &mark : ALL(log, range_mark))
    EXPECT_EQ(mark.domain, 0);
}

TEST(SourceNvtx, MoreDomainsThanFitShareOne) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    nvtxEventAttributes_t range = attributes("range");
    for (int i = 0; i < 400; i++) {
      nvtxDomainHandle_t domain = nvtx->DomainCreateA(("domain " + std::to_string(i)).c_str());
      EXPECT_NE(domain, nullptr);
      EXPECT_GE(nvtx->DomainRangePushEx(domain, &range), 0);
    }
  });
  auto domains = ALL(log, nvtx_domain);
  std::set<uint32_t> ids;
  for (const auto &domain : domains)
    EXPECT_TRUE(ids.insert(domain.id).second);
  EXPECT_EQ(log.name(domains.back().name), "(further domains)");
  auto pushes = ALL(log, range_push);
  ASSERT_EQ(pushes.size(), 400u);
  for (const auto &push : pushes)
    EXPECT_EQ(ids.count(push.domain), 1u);
}

TEST(SourceNvtx, RangesDeeperThanTheLimitAreCountedNotRecorded) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    for (int level = 0; level < 1500; level++)
      EXPECT_EQ(nvtx->RangePushA("deep"), level);
    for (int level = 1499; level >= 0; level--)
      EXPECT_EQ(nvtx->RangePop(), level);
    EXPECT_LT(nvtx->RangePop(), 0);
  });
  EXPECT_EQ(log.of(SL_EVENT_range_push).size(), 1024u);
  EXPECT_EQ(log.of(SL_EVENT_range_pop).size(), 1024u);
  auto gaps = ALL(log, gap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(log.name(gaps[0].source), "nvtx");
}

TEST(SourceNvtx, ResourcesGetAHandleAndAreNotRecorded) {
  Recording log = record_nvtx([] {
    nvtxResourceAttributes_t resource = {};
    nvtxResourceHandle_t handle = alpha()->DomainResourceCreate(nullptr, &resource);
    EXPECT_NE(handle, nullptr);
    alpha()->DomainResourceDestroy(handle);
    alpha()->Initialize(nullptr);
    alpha()->MarkA("mark");
  });
  EXPECT_EQ(log.of(SL_EVENT_range_mark).size(), 1u);
}

TEST(SourceNvtx, ManyThreadsMayInitialiseBothLibrariesAtOnce) {
  Recording log = record_nvtx([] {
    const nvtx_library *libraries[] = {alpha(), beta()};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
      threads.emplace_back([nvtx = libraries[i % 2], i] {
        nvtxDomainHandle_t domain = nvtx->DomainCreateA(("domain " + std::to_string(i % 4)).c_str());
        nvtxEventAttributes_t range = attributes("range");
        for (int j = 0; j < 200; j++) {
          nvtx->DomainRangePushEx(domain, &range);
          nvtx->RangeEnd(nvtx->RangeStartA("started"));
          nvtx->DomainRangePop(domain);
        }
      });
    for (std::thread &thread : threads)
      thread.join();
  });
  /* A thread that starts while no segment is ready loses events, and says how many; the log's own are among them. */
  uint64_t events = 0;
  for (sl_event_type type : {SL_EVENT_range_push, SL_EVENT_range_pop, SL_EVENT_range_start, SL_EVENT_range_end})
    events += log.of(type).size();
  for (const auto &gap : ALL(log, gap))
    events += gap.lost;
  EXPECT_GE(events, 4u * 1600);
  std::set<uint64_t> ids;
  for (const auto &start : ALL(log, range_start))
    EXPECT_TRUE(ids.insert(start.id).second);
  EXPECT_FALSE(ids.empty());
}

TEST(SourceNvtx, AProcessThatOnlyNamesThingsLeavesNoLog) {
  Recording log = record_nvtx([] {
    nvtxDomainHandle_t domain = alpha()->DomainCreateA("domain");
    alpha()->DomainRegisterStringA(domain, "string");
  });
  EXPECT_TRUE(log.events.empty());
}

TEST(SourceNvtx, AForkedChildAnswersAndRecordsNothing) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    nvtx->RangePushA("parent");
    pid_t child = fork();
    if (child == 0) {
      bool answered = nvtx->RangePushA("child") == 1 && nvtx->RangePop() == 1 && nvtx->RangeStartA("child") != 0 &&
                      nvtx->DomainCreateA("child") != nullptr;
      _exit(answered ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
  EXPECT_EQ(log.of(SL_EVENT_range_push).size(), 1u);
  EXPECT_TRUE(log.of(SL_EVENT_range_start).empty());
}

// SHARDLEDGER_AT_MAX=keep-last as an option: without steps, at the smallest limit, with nobody who trims, under `run`.
#include "plugin/recorded.h"
#include "plugin/trimmed_log.h"

#include "nvtx_ranges/kinds.h"

#include <atomic>
#include <functional>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <thread>
#include <vector>

using namespace trimmed_log;

namespace {

TEST(KeepLastOption, NeedsNoStepsAndNoAllocator) {
  constexpr uint64_t COUNT = 60'000;
  const Recording recording = record({{"SHARDLEDGER_MAX_BYTES", "24MiB"}, {"SHARDLEDGER_AT_MAX", "keep-last"}}, [] {
    Trimmer trimmer;
    trimmer.start(getenv("SHARDLEDGER_DIR"));
    std::minstd_rand random(9);
    for (uint64_t i = 0; i < COUNT; i++) {
      const sl_event_range_mark event = {0, 0, 0, i};
      sl_log_append(SL_EVENT_range_mark, &event, sizeof(event), nullptr, 0);
      noise(random);
      if (i % 50 == 0)
        usleep(2'000);
      while (i % 200 == 0 && is_behind(24 * MIB))
        usleep(1'000);
    }
  });
  const auto marks = ALL(recording, range_mark);
  const auto dropped = ALL(recording, dropped);
  for (const auto &gap : ALL(recording, gap))
    if (gap.lost)
      GTEST_SKIP() << "this machine is too busy";
  size_t holes = 0;
  for (size_t i = 1; i < marks.size(); i++)
    holes += marks[i].value != marks[i - 1].value + 1;
  EXPECT_EQ(holes, 1u);
  EXPECT_EQ(marks.front().value, 0u);
  EXPECT_EQ(marks.back().value, COUNT - 1);
  EXPECT_LT(marks.size(), COUNT / 2);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_GE(marks.size() + dropped[0].events / 2 + 1, COUNT) << "a mark and its noise, and the clock's";
}

std::string read_text(const std::string &file) {
  return {std::istreambuf_iterator<char>(std::ifstream(file).rdbuf()), {}};
}

/*
 * A step after another, each event tried until it is recorded, while other threads that have recorded something hold a
 * segment each. Returns how many steps could be recorded before one had to wait for a minute.
 */
uint64_t steps_recorded_at_last(uint64_t steps) {
  constexpr int IDLE = 4;
  std::atomic<bool> done{false};
  std::atomic<int> begun{0};
  std::vector<std::thread> idle;
  for (int i = 0; i < IDLE; i++)
    idle.emplace_back([&] {
      const sl_event_range_mark mark = {0, 0, 0, UINT64_MAX};
      sl_log_append(SL_EVENT_range_mark, &mark, sizeof(mark), nullptr, 0);
      begun++;
      while (!done)
        usleep(1'000);
    });
  while (begun < IDLE)
    usleep(1'000);
  const sl_event_nvtx_domain domain = {1, sl_log_name("shardledger")};
  sl_log_define(SL_EVENT_nvtx_domain, &domain, sizeof(domain), nullptr, 0);
  std::minstd_rand random(11);
  const auto until_recorded = [](const std::function<bool()> &append) {
    for (int i = 0; i < 60'000; i++) {
      if (append())
        return true;
      usleep(1'000);
    }
    return false;
  };
  uint64_t step = 0;
  for (bool goes_on = true; goes_on && step < steps; step += goes_on) {
    const sl_event_range_start start = {step + 1, sl_log_name("step"), 1, SL_KIND_step, step};
    const sl_event_range_end end = {step + 1};
    goes_on = until_recorded([&] { return sl_log_append(SL_EVENT_range_start, &start, sizeof(start), nullptr, 0); });
    for (int i = 0; i < 50 && goes_on; i++)
      goes_on = until_recorded([&] { return noise(random, 15); });
    goes_on =
        goes_on && until_recorded([&] { return sl_log_append(SL_EVENT_range_end, &end, sizeof(end), nullptr, 0); });
  }
  done = true;
  for (std::thread &thread : idle)
    thread.join();
  return step;
}

TEST(KeepLastOption, GoesOnAtTheSmallestLimit) {
  constexpr uint64_t STEPS = 300; /* some 15 MiB, and half of it sealed: real logs take less */
  const Recording recording = record(
      {{"SHARDLEDGER_MAX_BYTES", std::to_string(SL_KEEP_LAST_BYTES_MIN)}, {"SHARDLEDGER_AT_MAX", "keep-last"}}, [=] {
        Trimmer trimmer;
        trimmer.start(getenv("SHARDLEDGER_DIR"));
        EXPECT_EQ(steps_recorded_at_last(STEPS), STEPS);
      });
  const auto starts = ALL(recording, range_start);
  ASSERT_FALSE(starts.empty());
  EXPECT_EQ(starts.front().value, 0u);
  EXPECT_EQ(starts.back().value, STEPS - 1);
  EXPECT_EQ(ALL(recording, dropped).size(), 1u);
}

TEST(KeepLastOption, StopsWhereNobodyTrimsAndGoesOnWhenSomebodyDoes) {
  constexpr uint64_t LIMIT = 12 * MIB;
  uint64_t *before = (uint64_t *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const Environment environment = {{"SHARDLEDGER_MAX_BYTES", std::to_string(LIMIT)},
                                   {"SHARDLEDGER_AT_MAX", "keep-last"},
                                   {"SHARDLEDGER_LOG", "info"}};
  const Recording recording = record(environment, [=] {
    const std::string file = std::string(getenv("SHARDLEDGER_DIR")) + "-said",
                      line = "MAX_BYTES before 'shardledger trim'";
    EXPECT_NE(freopen(file.c_str(), "w", stderr), nullptr);
    const auto said = [&] { return read_text(file); };
    std::minstd_rand random(17);
    /* A millisecond each, at the limit: on a busy machine there may be no segment where that is still far. */
    for (int failed = 0; failed < 1'000;)
      if (noise(random)) {
        ++*before;
        failed = 0;
        usleep(100);
      } else {
        failed += said().find(line) != std::string::npos;
        usleep(1'000);
      }
    EXPECT_LE(directory_bytes(sl_log_directory()), LIMIT);
    Trimmer trimmer;
    trimmer.start(getenv("SHARDLEDGER_DIR"));
    pause_for_helper(); /* until there is room again, before the thread tells what it has lost */
    bool again = false;
    for (int i = 0; i < 60'000 && !again; i++, usleep(1'000))
      again = noise(random);
    EXPECT_TRUE(again);
    trimmer.end(SIGTERM);
    EXPECT_EQ(said().find(line), said().rfind(line)) << "once: " << said();
    fs::remove(file);
  });
  const auto dropped = ALL(recording, dropped);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_GE(recording.of(SL_EVENT_range_payload).size() + dropped[0].events, *before) << "nothing else is missing";
  uint64_t lost = 0;
  for (const auto &gap : ALL(recording, gap))
    if (recording.name(gap.reason) == "SHARDLEDGER_MAX_BYTES reached")
      lost += gap.lost;
  EXPECT_GE(lost, 1'000u);
  munmap(before, 4096);
}

TEST(KeepLastOption, IsCarriedOutByRun) {
  char root[] = "/tmp/shardledger-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  const std::string self = fs::read_symlink("/proc/self/exe"), run = std::string(root) + "/run";
  const std::string command =
      SL_BUILD_DIR "/bin/shardledger run --python off --max-bytes 32MiB --at-max keep-last -o " + run + " -- " + self +
      " --gtest_also_run_disabled_tests --gtest_filter=KeepLastJob.* >/dev/null 2>&1";
  EXPECT_EQ(system(command.c_str()), 0);
  fs::path process;
  for (const auto &entry : fs::directory_iterator(run))
    if (entry.is_directory())
      process = entry.path();
  EXPECT_LE(directory_bytes(process), CAP + MIB);
  fs::remove(run + "/ledger.sqlite");
  const Recording recording = read_recording(run);
  const auto starts = ALL(recording, range_start);
  ASSERT_FALSE(starts.empty());
  EXPECT_EQ(starts.front().value, 0u);
  EXPECT_EQ(starts.back().value, 999u);
  EXPECT_LT(starts.size(), 900u);
  EXPECT_EQ(ALL(recording, dropped).size(), 1u);
  fs::remove_all(root);
}

TEST(KeepLastOption, SaysWhichLimitIsTooSmallAndStopsThere) {
  const std::string limit = std::to_string(SL_KEEP_LAST_BYTES_MIN - 1);
  const Environment environment = {
      {"SHARDLEDGER_MAX_BYTES", limit}, {"SHARDLEDGER_AT_MAX", "keep-last"}, {"SHARDLEDGER_LOG", "info"}};
  const Recording recording = record(environment, [] {
    testing::internal::CaptureStderr();
    std::minstd_rand random(13);
    for (int i = 0; i < 6'000; i++) {
      for (int n = 0; n < 50; n++)
        noise(random);
      usleep(10'000); /* the helper thread comes to the limit when it has the time to */
      if (i % 32 == 31 && has_gap(sl_log_directory(), "SHARDLEDGER_MAX_BYTES reached"))
        break;
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("SHARDLEDGER_AT_MAX=keep-last takes SHARDLEDGER_MAX_BYTES=6MiB or more"), std::string::npos)
        << said;
    EXPECT_NE(said.find("what follows is counted, not recorded"), std::string::npos) << said;
  });
  EXPECT_TRUE(ALL(recording, dropped).empty());
  EXPECT_FALSE(ALL(recording, range_payload).empty());
}

} // namespace

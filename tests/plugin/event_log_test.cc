/* The writer, through the reader: what is recorded, and what is counted as lost. */
#include "fakes/rounds.h"
#include "fakes/sanitizers.h"
#include "plugin/marks.h"

#include "plugin/format/log_format.h"

extern "C" {
#include "plugin/log/log_helper.h"
#include "plugin/log/thread_state.h"
#include "storage/log/log_reader.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;

namespace {

std::string info(const Recording &recording, const std::string &key) {
  std::string value;
  for (const auto &event : ALL(recording, info))
    if (recording.name(event.key) == key)
      value = recording.name(event.value);
  return value;
}

std::map<uint32_t, std::vector<uint64_t>> marks_by_thread(const Recording &recording) {
  std::map<uint32_t, std::vector<uint64_t>> out;
  for (const Event &event : recording.of(SL_EVENT_range_mark))
    out[event.thread].push_back(event.as<sl_event_range_mark>().value);
  return out;
}

/* ---- what is recorded ---- */

TEST(EventLog, KeepsEveryThreadsOrderOverManySegments) {
  constexpr uint64_t COUNT = 60'000;
  Recording recording = record({}, [] {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; t++)
      threads.emplace_back([t] {
        for (uint64_t i = 0; i < COUNT; i++) {
          mark(t << 32 | i);
          if (i % 5'000 == 4'999)
            pause_for_helper();
        }
      });
    for (auto &thread : threads)
      thread.join();
  });
  auto marks = marks_by_thread(recording);
  EXPECT_EQ(marks.size(), 4u);
  uint64_t total = 0;
  for (const auto &thread : marks) {
    total += thread.second.size();
    for (size_t i = 1; i < thread.second.size(); i++)
      ASSERT_GT(thread.second[i], thread.second[i - 1]);
  }
  EXPECT_EQ(total + recording.lost(), 4 * COUNT);
  EXPECT_GT(total, 3 * COUNT);
}

TEST(EventLog, StampsEventsWithTheRealTime) {
  timespec before, after;
  clock_gettime(CLOCK_REALTIME, &before);
  Recording recording = record({}, [] { mark(1); });
  clock_gettime(CLOCK_REALTIME, &after);
  uint64_t time = recording.of(SL_EVENT_range_mark).at(0).time_ns;
  EXPECT_GE(time, (uint64_t)before.tv_sec * 1'000'000'000 + (uint64_t)before.tv_nsec);
  EXPECT_LE(time, (uint64_t)after.tv_sec * 1'000'000'000 + (uint64_t)after.tv_nsec);
}

TEST(EventLog, LeavesNothingBehindWithoutAnEvent) {
  Recording recording = record({}, [] {
    sl_log_init();
    const sl_event_info event = {sl_log_name("torch_version"), sl_log_name("2.11")};
    sl_log_define(SL_EVENT_info, &event, sizeof(event), nullptr, 0);
    EXPECT_STREQ(sl_log_directory(), "");
    EXPECT_TRUE(fs::is_empty(getenv("SHARDLEDGER_DIR")));
  });
  EXPECT_TRUE(recording.events.empty());
}

TEST(EventLog, KeepsDefinitionsFromBeforeTheFirstEvent) {
  Recording recording = record({}, [] {
    const sl_event_info event = {sl_log_name("torch_version"), sl_log_name("2.11")};
    sl_log_define(SL_EVENT_info, &event, sizeof(event), nullptr, 0);
    mark(1, sl_log_name("torch_version"));
  });
  EXPECT_EQ(info(recording, "torch_version"), "2.11");
  EXPECT_EQ(recording.name(ALL(recording, range_mark).at(0).name), "torch_version");
}

TEST(EventLog, DescribesTheProcess) {
  Recording recording = record({{"RANK", "5"},
                                {"SLURM_PROCID", "6"},
                                {"SLURM_NTASKS", "16"},
                                {"LOCAL_RANK", ""},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"},
                                {"SECRET_TOKEN", "hunter2"}},
                               [] { mark(1); });
  EXPECT_EQ(info(recording, "rank"), "5");
  EXPECT_EQ(info(recording, "world_size"), "16");
  EXPECT_EQ(info(recording, "local_rank"), "1");
  EXPECT_EQ(info(recording, "allocator_config"), "expandable_segments:True");
  EXPECT_FALSE(info(recording, "pid").empty());
  EXPECT_FALSE(info(recording, "host").empty());
  const std::string ancestors = info(recording, "ancestors") + " ";
  EXPECT_EQ(ancestors.rfind(info(recording, "ppid") + " ", 0), 0u) << ancestors;
  const std::string above = std::to_string(getppid()); /* this process's parent, whoever recorded */
  EXPECT_TRUE(above == "1" || (" " + ancestors).find(" " + above + " ") != std::string::npos) << ancestors;
  EXPECT_FALSE(info(recording, "start_ns").empty());
  EXPECT_FALSE(info(recording, "shardledger_version").empty());
  for (const auto &name : recording.names)
    EXPECT_EQ(name.second.find("hunter2"), std::string::npos);
}

TEST(EventLog, DescribesTheRunAsLaunchersNameIt) {
  Recording recording = record({{"TORCHELASTIC_RUN_ID", "nightly"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"},
                                {"TORCHELASTIC_ERROR_FILE", "/tmp/hunter2"},
                                {"SLURM_JOB_ID", "4711"},
                                {"SLURM_STEPID", "3"},
                                {"SLURM_RESTART_COUNT", "1"},
                                {"SLURM_JOB_COMMENT", "hunter2"},
                                {"PBS_JOBID", "12[3].host"},
                                {"LSB_JOBID", "99"},
                                {"LSB_JOBINDEX", "7"},
                                {"PMIX_NAMESPACE", "prterun-host-42@1"},
                                {"PMIX_SECURITY_MODE", "hunter2"},
                                {"MASTER_ADDR", "gpu-node-01"},
                                {"MASTER_PORT", "29500"}},
                               [] { mark(1); });
  const std::vector<std::pair<std::string, std::string>> facts = {{"torchelastic_run_id", "nightly"},
                                                                  {"torchelastic_restart_count", "2"},
                                                                  {"slurm_job_id", "4711"},
                                                                  {"slurm_step_id", "3"},
                                                                  {"slurm_restart_count", "1"},
                                                                  {"pbs_job_id", "12[3].host"},
                                                                  {"lsf_job_id", "99"},
                                                                  {"lsf_job_index", "7"},
                                                                  {"mpi_job_id", "prterun-host-42@1"},
                                                                  {"master_addr", "gpu-node-01"},
                                                                  {"master_port", "29500"}};
  for (const auto &[key, value] : facts)
    EXPECT_EQ(info(recording, key), value) << key;
  for (const auto &name : recording.names)
    EXPECT_EQ(name.second.find("hunter2"), std::string::npos);
}

TEST(EventLog, WritesTailsAndTheirPadding) {
  Recording recording = record({}, [] {
    for (uint32_t length : {0, 1, 7, 8, 9, 1024}) {
      const sl_event_range_payload event = {7, length, 0};
      sl_log_append(SL_EVENT_range_payload, &event, sizeof(event), std::string(length, 'x').data(), length);
    }
  });
  auto events = recording.of(SL_EVENT_range_payload);
  ASSERT_EQ(events.size(), 6u);
  for (const Event &event : events) {
    const size_t length = event.as<sl_event_range_payload>().length;
    EXPECT_EQ(event.payload.size(), sizeof(sl_event_range_payload) + (length + 7) / 8 * 8);
    EXPECT_EQ(event.tail(sizeof(sl_event_range_payload), length), std::string(length, 'x'));
  }
}

TEST(EventLog, MarksClocksEverySecond) {
  Recording recording = record({}, [] {
    static std::atomic<int> ticks;
    sl_log_on_tick([] { ticks++; });
    mark(1);
    while (ticks < 2)
      usleep(1'000);
  });
  auto clocks = ALL(recording, clock);
  ASSERT_GE(clocks.size(), 2u);
  EXPECT_GT(clocks[0].realtime_ns, clocks[0].monotonic_ns);
  EXPECT_EQ(clocks[0].cupti_ns, 0u);
}

/* ---- names ---- */

TEST(EventLog, MakesNamesOfAnything) {
  Recording recording = record({}, [] {
    mark(0, sl_log_name("layers.0"));
    mark(1, sl_log_name("bell\a esc\x1b del\x7f"));
    mark(2, sl_log_name("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
    mark(3, sl_log_name("bad \xff\xc3( \xed\xa0\x80"));
    mark(4, sl_log_name_n("a\0b", 3));
    mark(5, sl_log_name("c1 \xc2\x9b"));
    EXPECT_EQ(sl_log_name(nullptr), 0u);
    EXPECT_EQ(sl_log_name(""), 0u);
    EXPECT_EQ(sl_log_name("layers.0"), sl_log_name_n("layers.0 and more", 8));
  });
  auto marks = ALL(recording, range_mark);
  EXPECT_EQ(recording.name(marks[0].name), "layers.0");
  EXPECT_EQ(recording.name(marks[1].name), "bell? esc? del?");
  EXPECT_EQ(recording.name(marks[2].name), "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  const std::string u = "\xef\xbf\xbd";
  EXPECT_EQ(recording.name(marks[3].name), "bad " + u + u + "( " + u + u + u);
  EXPECT_EQ(recording.name(marks[4].name), "a?b");
  EXPECT_EQ(recording.name(marks[5].name), "c1 ?");
}

TEST(EventLog, ClipsLongNamesBetweenCharacters) {
  Recording recording = record({}, [] {
    mark(0, sl_log_name(std::string(1'000'000, 'x').c_str()));
    std::string wide;
    while (wide.size() < 3'000)
      wide += "\xe2\x82\xac";
    mark(1, sl_log_name(wide.c_str()));
    mark(2, sl_log_name(std::string(5'000, '\xff').c_str()));
    EXPECT_EQ(sl_log_name(wide.c_str()), sl_log_name(wide.substr(0, 999).c_str()));
  });
  auto marks = ALL(recording, range_mark);
  EXPECT_EQ(recording.name(marks[0].name), std::string(1000, 'x'));
  EXPECT_EQ(recording.name(marks[1].name).size(), 999u);
  EXPECT_EQ(recording.name(marks[2].name).size(), 999u);
}

TEST(EventLog, GivesOneIdToANameThatManyThreadsBringAtOnce) {
  Recording recording = record({}, [] {
    std::vector<std::thread> threads;
    std::vector<std::vector<uint32_t>> ids(4, std::vector<uint32_t>(2'000));
    mark(0);
    for (int t = 0; t < 4; t++)
      threads.emplace_back([&ids, t] {
        for (int i = 0; i < 2'000; i++)
          ids[t][i] = sl_log_name(("name " + std::to_string(i)).c_str());
      });
    for (auto &thread : threads)
      thread.join();
    for (int t = 1; t < 4; t++)
      EXPECT_EQ(ids[t], ids[0]);
    mark(1, ids[0][1'234]);
  });
  EXPECT_EQ(recording.name(ALL(recording, range_mark).at(1).name), "name 1234");
  EXPECT_GE(recording.names.size(), 2'000u);
}

/* ---- threads that come and go ---- */

TEST(EventLog, KeepsTheEventsOfThreadsThatEnded) {
  Recording recording = record({}, [] {
    for (uint64_t i = 0; i < 100; i++) {
      std::thread([i] { mark(i); }).join();
      usleep(2'000);
    }
  });
  EXPECT_EQ(marks_by_thread(recording).size(), 100u) << "each thread has an ordinal of its own";
  EXPECT_EQ(recording.lost(), 0u);
}

TEST(EventLog, LetsAThreadGoOnInTheSegmentOfOneThatEnded) {
  constexpr uint64_t COUNT = 15'000; /* more than one segment holds, so each thread begins in the middle of one */
  std::vector<uint32_t> tids(5);
  auto *seen = static_cast<uint32_t *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Recording recording = record({}, [&] {
    for (uint64_t t = 0; t < tids.size(); t++)
      std::thread([=] {
        seen[t] = sl_log_tid();
        for (uint64_t i = 0; i < COUNT; i++) {
          mark(t << 32 | i);
          if (i % 5'000 == 4'999)
            pause_for_helper();
        }
      }).join();
    const auto in_use = [] {
      size_t files = 0;
      for (const auto &file : fs::directory_iterator(sl_log_directory()))
        files += file_bytes(file) == SL_SEGMENT_BYTES && !is_ready(file.path());
      return files;
    };
    EXPECT_TRUE(eventually([&] { return in_use() < tids.size(); }))
        << in_use() << " are in use or not sealed: more than the definitions' and the last one that the threads used";
  });
  EXPECT_EQ(recording.lost(), 0u);
  std::map<uint64_t, std::vector<uint64_t>> values;
  for (const Event &event : recording.of(SL_EVENT_range_mark)) {
    const uint64_t value = event.as<sl_event_range_mark>().value;
    EXPECT_EQ(event.tid, seen[value >> 32]);
    values[event.thread].push_back(value);
  }
  EXPECT_EQ(values.size(), tids.size());
  for (const auto &thread : values) {
    ASSERT_EQ(thread.second.size(), COUNT);
    for (size_t i = 1; i < COUNT; i++)
      ASSERT_EQ(thread.second[i], thread.second[i - 1] + 1);
  }
  munmap(seen, 4096);
}

TEST(EventLog, SealsWhatThreadsLeftThatNobodyFollows) {
  Recording recording = record({}, [] {
    std::vector<std::thread> threads;
    std::atomic<int> begun{0};
    for (uint64_t t = 0; t < 10; t++)
      threads.emplace_back([&begun, t] {
        mark(t);
        begun++;
        while (begun < 10) /* none ends before the last one has begun */
          usleep(1'000);
      });
    for (auto &thread : threads)
      thread.join();
    const std::string sealed = std::string(sl_log_directory()) + "/" SL_SEALED_NAME;
    for (int i = 0; i < 6'000 && !fs::exists(sealed); i++)
      usleep(10'000);
    EXPECT_TRUE(fs::exists(sealed));
  });
  EXPECT_EQ(marks_by_thread(recording).size(), 10u);
}

TEST(EventLog, LetsThousandsOfThreadsComeAndGo) {
  const int THREADS = 100 * rounds(20);
  constexpr int AT_ONCE = 20;
  Recording recording = record({}, [&] {
    for (int i = 0; i < THREADS; i += AT_ONCE) {
      std::vector<std::thread> threads;
      for (int t = 0; t < AT_ONCE; t++)
        threads.emplace_back([=] { mark((uint64_t)(i + t)); });
      for (auto &thread : threads)
        thread.join();
    }
    EXPECT_TRUE(sl_log_active());
  });
  EXPECT_EQ(marks_by_thread(recording).size(), (size_t)THREADS);
  EXPECT_EQ(recording.lost(), 0u);
}

TEST(EventLog, LetsManyProcessesStartAtOnceInOneDirectory) {
  const int count = 5 * rounds(8);
  char root[] = "/tmp/shardledger-test-XXXXXX";
  ASSERT_NE(mkdtemp(root), nullptr);
  int start[2];
  ASSERT_EQ(pipe(start), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child == 0) {
      char byte;
      close(start[1]);
      setenv("SHARDLEDGER_DIR", root, 1);
      if (read(start[0], &byte, 1) != 0)
        _exit(1);
      exit(mark((uint64_t)i) ? 0 : 2);
    }
    children.push_back(child);
  }
  close(start[0]);
  const auto begin = std::chrono::steady_clock::now();
  close(start[1]); /* all at once */
  for (pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  int whole = 0;
  for (const auto &directory : fs::directory_iterator(root)) {
    sl_log *log = nullptr;
    sl_error error = {};
    sl_event event;
    ASSERT_EQ(sl_log_open(directory.path().c_str(), &log, &error), 0) << error.text;
    int marks = 0, ends = 0;
    while (sl_log_next(log, &event, &error) == 1) {
      marks += event.type == SL_EVENT_range_mark;
      ends += event.type == SL_EVENT_process_end;
    }
    whole += marks == 1 && ends == 1;
    sl_log_close(log);
  }
  printf("%d processes recorded and ended in %.1f s\n", whole, seconds.count());
  EXPECT_EQ(whole, count);
  fs::remove_all(root);
}

TEST(EventLog, TakesEventsAfterTheThreadsOwnEnd) {
  static pthread_key_t late;
  Recording recording = record({}, [] {
    /* A destructor that runs again and again, in all rounds that there are; TSan ends with the second. */
    pthread_key_create(&late, [](void *count) {
      mark((uint64_t)(uintptr_t)count);
      if ((uintptr_t)count < (TSAN ? 2 : 4))
        pthread_setspecific(late, (void *)((uintptr_t)count + 1));
    });
    std::thread([] {
      mark(0);
      pthread_setspecific(late, (void *)1);
    }).join();
    mark(100);
  });
  std::vector<uint64_t> values;
  for (const auto &event : ALL(recording, range_mark))
    values.push_back(event.value);
  EXPECT_EQ(values, TSAN ? (std::vector<uint64_t>{0, 1, 2, 100}) : (std::vector<uint64_t>{0, 1, 2, 3, 4, 100}));
}

TEST(EventLog, TurnsAwayEventsOfASignalHandlerThatInterruptsOne) {
  static std::atomic<uint64_t> recorded, turned_away;
  Recording recording = record({}, [] {
    struct sigaction action = {};
    action.sa_handler = [](int) { (mark(1) ? recorded : turned_away)++; };
    action.sa_flags = SA_RESTART;
    mark(0);
    sigaction(SIGALRM, &action, nullptr);
    itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, nullptr);
    for (int i = 0; i < 200'000; i++) {
      (mark(0) ? recorded : turned_away)++;
      if (i % 5'000 == 0)
        pause_for_helper();
    }
    timer = {};
    setitimer(ITIMER_REAL, &timer, nullptr);
    /* Tried again where the helper thread is late: each try that fails is one more that is turned away. */
    const sl_event_tag counts = {recorded, 0, 0, 0, 0};
    while (!sl_log_append(SL_EVENT_tag, &counts, sizeof(counts), nullptr, 0)) {
      turned_away++;
      usleep(1'000);
    }
    const sl_event_tag others = {turned_away, 0, 0, 0, 0};
    sl_log_append(SL_EVENT_tag, &others, sizeof(others), nullptr, 0);
  });
  ASSERT_EQ(ALL(recording, tag).size(), 2u);
  EXPECT_EQ(ALL(recording, range_mark).size(), ALL(recording, tag)[0].address + 1);
  EXPECT_EQ(recording.lost(), ALL(recording, tag)[1].address);
}

/* ---- losses ---- */

TEST(EventLog, CountsWhatIsLostWhenNoSegmentIsReady) {
  static std::atomic<bool> blocked, release;
  Recording recording = record({}, [] {
    sl_log_on_tick([] {
      blocked = true;
      while (!release)
        usleep(1'000);
    });
    mark(0);
    while (!blocked)
      usleep(1'000);
    uint64_t failures = 0;
    for (uint64_t i = 0; i < 200'000; i++)
      failures += !mark(i);
    EXPECT_GT(failures, 50'000u);
    release = true;
    pause_for_helper();
    for (; !mark(failures); failures++) /* the helper thread is late: one more is lost */
      usleep(1'000);
  });
  auto marks = ALL(recording, range_mark);
  EXPECT_EQ(recording.lost(), marks.back().value);
  EXPECT_GE(marks.size() + recording.lost(), 200'002u);
  EXPECT_EQ(gap_reasons(recording), (std::vector<std::string>{"no segment was ready"}));
}

TEST(EventLog, StopsAtTheSizeLimitAndCountsTheRest) {
  auto *made = static_cast<uint64_t *>(
      mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(made, MAP_FAILED);
  Recording recording = record({{"SHARDLEDGER_MAX_BYTES", "4MiB"}}, [made] {
    /* Values that do not compress. */
    uint64_t value = 88172645463325252;
    const auto marks = [&](int count) {
      for (int i = 0; i < count; i++) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        mark(value);
        ++*made;
      }
    };
    for (int i = 0; i < 30; i++) {
      marks(20'000);
      usleep(20'000);
    }
    /* Until the helper thread has come to the limit: on a busy machine it may have met few of these so far. */
    for (int i = 0; i < 3'000 && !has_gap(sl_log_directory(), "SHARDLEDGER_MAX_BYTES reached"); i++) {
      marks(2'000);
      usleep(10'000);
    }
    mark(0);
    ++*made;
    uint64_t bytes = 0;
    for (const auto &file : fs::directory_iterator(sl_log_directory()))
      bytes += file_bytes(file);
    EXPECT_LE(bytes, 4u << 20);
    EXPECT_GT(bytes, 3u << 20);
    EXPECT_TRUE(sl_log_active()) << "still counting";
  });
  EXPECT_EQ(ALL(recording, range_mark).size() + recording.lost(), *made);
  const auto reasons = gap_reasons(recording);
  EXPECT_NE(std::find(reasons.begin(), reasons.end(), "SHARDLEDGER_MAX_BYTES reached"), reasons.end());
  EXPECT_EQ(ALL(recording, process_end).size(), 1u);
}

TEST(EventLog, MarksAPauseWithGaps) {
  Recording recording = record({}, [] {
    mark(1);
    sl_log_pause(true);
    EXPECT_FALSE(sl_log_active());
    EXPECT_FALSE(mark(2));
    const uint32_t name = sl_log_name("met while paused");
    sl_log_pause(false);
    EXPECT_TRUE(mark(3, name));
  });
  auto marks = ALL(recording, range_mark);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(recording.name(marks[1].name), "met while paused");
  EXPECT_EQ(gap_reasons(recording), (std::vector<std::string>{"paused", "resumed"}));
}

} // namespace

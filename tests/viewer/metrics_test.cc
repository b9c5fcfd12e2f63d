// `watch --metrics`: what Prometheus gets of names, numbers and addresses that are hard to tell.
#include "fakes/command.h"
#include "fakes/log_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kStart = 1'000'000'000'000'000'000;
constexpr uint64_t kMiB = 1 << 20;

class Metrics : public ::testing::Test {
protected:
  // What each of them begins with: it is rank 0 of one.
  LogBuilder &log() {
    return made.info("rank", "0").info("world_size", "1");
  }
  // The sample lines.
  std::vector<std::string> samples() {
    CommandResult result = shardledger({"watch", run, "--once", "--metrics", "-"});
    EXPECT_EQ(result.status, 0) << result.error;
    std::vector<std::string> lines;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);)
      if (!line.empty() && line[0] != '#')
        lines.push_back(line);
    return lines;
  }
  // The value of the only series of this name; "": there is none.
  std::string value(const std::string &name) {
    std::string found;
    for (const std::string &line : samples())
      if (line.rfind("shardledger_" + name + "{", 0) == 0) {
        EXPECT_EQ(found, "") << line;
        found = line.substr(line.rfind(' ') + 1);
      }
    return found;
  }

  TemporaryDirectory directory;
  fs::path run = directory.path + "/run";
  LogBuilder made{run / "host-0-1", kStart};
};

TEST_F(Metrics, NamesOfOthersAreEscapedAndBytesThatAreNoTextReplaced) {
  log();
  made.info("host", "a\"b\\c\nd\xff").info("slurm_job_id", "17").info("local_rank", "3").info("k8s_pod_name", "pod-0");
  made.device(0, "GPU", 1000 * kMiB);
  made.thread(1).at(kStart).process_end();
  made.finish();
  const std::vector<std::string> lines = samples();
  // The log's reader has replaced the end of a line.
  const std::string labels = "{rank=\"0\",local_rank=\"3\",node=\"a\\\"b\\\\c?d\xef\xbf\xbd\",slurm_job_id=\"17\"} 0";
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [&](const std::string &line) { return line == "shardledger_running" + labels; }),
            1)
      << testing::PrintToString(lines);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string &line) { return line.find("pod=\"pod-0\"") != std::string::npos; }),
            1)
      << testing::PrintToString(lines);
}

TEST_F(Metrics, ANodeOfKubernetesIsCalledAsTheClusterCallsIt) {
  log();
  made.info("host", "pod-0").info("k8s_node_name", "node-7");
  made.thread(1).at(kStart).process_end();
  made.finish();
  EXPECT_NE(samples().back().find("node=\"node-7\""), std::string::npos);
}

TEST_F(Metrics, ARankHasThirtySeriesAtMostWhateverItsCategories) {
  std::string rules;
  {
    log();
    made.device(0, "GPU", 1000 * kMiB).module(1, 0, "", "Model", SL_MODULE_ROOT);
    auto &thread = made.thread(1);
    thread.at(kStart + 100).allocator(SL_SEGMENT_ALLOC, 0x10000000, 64 * kMiB);
    thread.range_start(1, "step 0", SL_KIND_step, 0);
    uint64_t at = 0x10000000; // each right behind the one before, as the allocator does
    for (int i = 0; i < 30; at += ++i * 1024) {
      const std::string name = "mine" + std::to_string(i);
      rules += "range " + name + " category " + name + "\n";
      thread.at(kStart + 200 + i).range_push(name.c_str());
      thread.allocator(SL_ALLOC, at, (i + 1) * 1024).range_pop();
    }
    thread.at(kStart + 300).range_end(1).process_end();
    made.finish();
  }
  write_file(directory / "my.rules", rules);
  CommandResult ingested = shardledger({"ingest", run, "--rules", directory / "my.rules"});
  ASSERT_EQ(ingested.status, 0) << ingested.error;
  uint64_t sum = 0;
  int series = 0, categories = 0;
  std::string allocated;
  for (const std::string &line : samples()) {
    series += line.find("rank=\"0\"") != std::string::npos;
    if (line.rfind("shardledger_memory_bytes{", 0) == 0) {
      categories++;
      sum += std::stoull(line.substr(line.rfind(' ') + 1));
    }
    if (line.rfind("shardledger_allocated_bytes{", 0) == 0)
      allocated = line.substr(line.rfind(' ') + 1);
  }
  EXPECT_LE(series, 30);
  EXPECT_GE(categories, 12) << testing::PrintToString(samples());
  EXPECT_EQ(std::to_string(sum), allocated);
}

TEST_F(Metrics, RetriesAreThoseOfTheLedger) {
  constexpr uint32_t kOutOfMemory = 2;
  log();
  made.device(0, "GPU", 1000 * kMiB);
  auto &t = made.thread(1);
  const auto give = [&](uint64_t address, uint64_t mib) {
    t.append(sl_event_driver_allocation{address, mib * kMiB, 0, made.string("libc10_cuda.so"),
                                        made.string("cuMemAlloc_v2"), 0, SL_MEMORY_DEVICE});
    t.allocator(SL_SEGMENT_ALLOC, address, mib * kMiB);
  };
  t.at(kStart + 90);
  give(0x10000000, 40);
  for (int i = 0; i < 2; i++) {
    t.at(kStart + 100 + 10 * i);
    t.append(sl_event_driver_failure{64 * kMiB, made.string("libc10_cuda.so"), made.string("cuMemAlloc_v2"),
                                     kOutOfMemory, 0});
    t.at(kStart + 105 + 10 * i);
    give(0x20000000 + i * 0x10000000ull, 64);
  }
  t.at(kStart + 200).process_end();
  made.finish();
  const std::string counted = shardledger({"query", "SELECT count(*) AS n FROM retry", run, "--csv"}).out;
  EXPECT_EQ(counted, "n\n2\n");
  EXPECT_EQ(value("allocation_retries_total"), "2");
}

TEST_F(Metrics, WhatIsNotKnownHasNoSeries) {
  log();
  made.thread(1).at(kStart).process_end();
  made.finish();
  EXPECT_EQ(value("allocated_bytes"), "");
  EXPECT_EQ(value("step"), "");
  EXPECT_EQ(value("steps_total"), "0");
}

TEST_F(Metrics, AFileIsReplacedWholeAndNothingIsLeftBesideIt) {
  log();
  made.thread(1).at(kStart).process_end();
  made.finish();
  const std::string file = directory / "job.prom";
  write_file(file, "old");
  CommandResult result = shardledger({"watch", run, "--metrics", file}); // it ends with the job
  EXPECT_EQ(result.status, 0) << result.error;
  EXPECT_EQ(read_file(file), shardledger({"watch", run, "--once", "--metrics", "-"}).out);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path), fs::directory_iterator()), 2);
  EXPECT_NE(result.out.find("Metrics: " + file + "\n"), std::string::npos);
}

TEST_F(Metrics, PlacesThatServeNobodyAreRefusedInOneSentence) {
  const std::map<std::vector<std::string>, std::string> refused = {
      {{"--metrics", "-"}, "needs --once"},
      {{"--metrics", ""}, "name a file or an address"},
      {{"--once", "--metrics", ":0"}, "an address can't be scraped"},
      {{"--metrics", "127.0.0.1:65536"}, "65536 is no port"},
      {{"--metrics", "192.0.2.1:9401"}, "can't listen on 192.0.2.1:9401"},
      {{"--metrics", directory / "none/job.prom"}, "No such file"},
  };
  for (const auto &[arguments, sentence] : refused) {
    std::vector<std::string> words = {"watch", run};
    words.insert(words.end(), arguments.begin(), arguments.end());
    CommandResult result = shardledger(words);
    EXPECT_EQ(result.status, 2) << sentence;
    EXPECT_NE(result.error.find(sentence), std::string::npos) << result.error;
    EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
  }
}

} // namespace

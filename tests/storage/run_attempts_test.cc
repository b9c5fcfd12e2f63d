// Which processes of a directory ran together: by what launchers said, and where they said nothing by what was
// recorded.
#include "fakes/fleet.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/run/run_attempts.h"
#include "storage/run/run_directory.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Infos = std::map<std::string, std::string>;
using Words = std::vector<std::string>;
constexpr uint64_t second = 1'000'000'000, begin = 1'700'000'000 * second;

class RunAttempts : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("attempts-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    sl_run_close(&run);
    fs::remove_all(directory);
  }
  // A process that records from one second to another one.
  void process(int rank, int from, int until, Infos infos = {}) {
    LogBuilder log(directory / ("process-" + std::to_string(count++)), begin + from * second);
    infos.insert({{"rank", std::to_string(rank)}, {"world_size", "2"}, {"host", "a"}});
    log.info("start_ns", std::to_string(begin + from * second));
    for (const auto &[key, value] : infos)
      log.info(key, value);
    log.thread(1).at(begin + from * second).range_push("wait").at(begin + until * second).range_pop();
  }
  // One that trains, or one that only uses the GPU: of a process id, and with ancestors.
  void with_steps(bool trains, int rank, int from, int until, const std::string &pid, const std::string &ancestors,
                  Infos infos = {}) {
    LogBuilder log(directory / ("process-" + std::to_string(count++)), begin + from * second);
    infos.insert({{"rank", std::to_string(rank)}, {"world_size", "2"}, {"host", "a"}});
    infos.insert({{"pid", pid}, {"ancestors", ancestors}});
    log.info("start_ns", std::to_string(begin + from * second));
    for (const auto &[key, value] : infos)
      log.info(key, value);
    auto &thread = log.thread(1).at(begin + from * second);
    if (trains)
      thread.range_start(1, "step 0", SL_KIND_step, 0).at(begin + until * second).range_end(1);
    else
      thread.range_push("load").at(begin + until * second).range_pop();
  }
  // The logs of a fleet, beside those of others.
  void fleet(Fleet fleet) {
    const fs::path place = directory / "..." / std::to_string(count++);
    write_fleet(place, fleet);
    for (const auto &entry : fs::directory_iterator(place))
      fs::rename(entry.path(), directory / (std::to_string(count) + "-" + entry.path().filename().string()));
    fs::remove_all(directory / "...");
  }
  int open(const char *attempt = nullptr) {
    sl_run_close(&run);
    const std::string path = directory.string();
    const char *paths[] = {path.c_str()};
    return sl_run_open(paths, 1, attempt, &run, &note, &error);
  }
  // "0-1 of 2" of each run, the oldest first.
  Words attempts() {
    Words words;
    EXPECT_EQ(open(), 0) << error.text;
    for (size_t i = 0; i < run.attempt_count; i++)
      words.push_back(std::string(run.attempts[i].ranks) + " of " + std::to_string(run.attempts[i].world_size));
    return words;
  }

  fs::path directory;
  int count = 0;
  sl_run run = {};
  sl_error note = {}, error = {};
};

TEST_F(RunAttempts, JobsOfDifferentSizesAreNeverOne) {
  for (int rank = 0; rank < 8; rank++)
    process(rank, 0, 10, {{"world_size", "8"}});
  process(0, 20, 30);
  process(1, 20, 30);
  EXPECT_EQ(attempts(), (Words{"0-7 of 8", "0-1 of 2"}));
  EXPECT_EQ(run.count, 2u);
  EXPECT_NE(std::string(note.text).find("run 2 (began 2023-11-14 22:13:40 UTC, 2 of 2 ranks) is used"),
            std::string::npos)
      << note.text;
}

TEST_F(RunAttempts, ARankThatIsRestartedAloneIsARunOfItsOwn) {
  Fleet job;
  job.steps = 1;
  job.deaths = {{{5}, Fleet::End::killed, 0, 0}};
  fleet(job);
  job.deaths.clear();
  job.start_ns += 60 * second;
  for (uint32_t rank = 0; rank < job.ranks; rank++)
    if (rank != 5)
      job.absent.insert(rank);
  fleet(job);
  EXPECT_EQ(attempts(), (Words{"0-15 of 16", "5 of 16"}));
  EXPECT_NE(std::string(note.text).find("1 of 16 ranks) is used; --run 1 shows the last whole one"), std::string::npos)
      << note.text;
  ASSERT_EQ(open("1"), 0);
  EXPECT_EQ(run.count, 16u);
}

// torchrun counts restarts on the host that failed alone; the other one joins the new rendezvous.
TEST_F(RunAttempts, ATorchrunRestartIsANewRunOnEveryHost) {
  for (int start : {0, 1})
    for (int rank = 0; rank < 4; rank++)
      process(rank, 20 * start + rank, 20 * start + 10,
              {{"world_size", "4"},
               {"host", rank < 2 ? "a" : "b"},
               {"ppid", rank < 2 ? "10" : "11"},
               {"torchelastic_run_id", "nightly"},
               {"torchelastic_restart_count", rank < 2 || start == 0 ? "0" : "1"}});
  EXPECT_EQ(attempts(), (Words{"0-3 of 4", "0-3 of 4"}));
  EXPECT_EQ(run.attempts[0].told_by, SL_TOLD_launcher);
  EXPECT_STREQ(run.attempts[1].name, "torchrun nightly");
  EXPECT_EQ(std::string(note.text).find("no launcher gave an id"), std::string::npos);
}

TEST_F(RunAttempts, ARestartCountSeparatesEvenRanksThatTheFirstStartLacked) {
  process(0, 0, 100, {{"torchelastic_run_id", "x"}, {"torchelastic_restart_count", "0"}});
  process(1, 50, 100, {{"torchelastic_run_id", "x"}, {"torchelastic_restart_count", "1"}});
  EXPECT_EQ(attempts(), (Words{"0 of 2", "1 of 2"}));
}

TEST_F(RunAttempts, AProcessThatBeginsAfterAllHaveEndedIsOfALaterRun) {
  process(0, 0, 10);
  process(1, 30, 40);
  EXPECT_EQ(attempts(), (Words{"0 of 2", "1 of 2"}));
}

TEST_F(RunAttempts, ALateProcessOfARunThatGoesOnBelongsToIt) {
  process(0, 0, 100);
  process(1, 90, 100);
  EXPECT_EQ(attempts(), (Words{"0-1 of 2"}));
  EXPECT_STREQ(note.text, "");
}

TEST_F(RunAttempts, TheSameProgramTwiceWithoutALauncherIsTwoRuns) {
  process(0, 0, 10, {{"world_size", ""}, {"rank", ""}});
  process(0, 20, 30, {{"world_size", ""}, {"rank", ""}});
  EXPECT_EQ(attempts(), (Words{"0 of -1", "0 of -1"}));
  EXPECT_NE(std::string(note.text).find("1 process) is used; --run 1 shows the other (ranks, times and communicators "
                                        "told them apart, as no launcher gave an id)"),
            std::string::npos)
      << note.text;
}

TEST_F(RunAttempts, WhatRanksStartIsNoRunThatCounts) {
  for (int rank : {0, 1})
    with_steps(true, rank, 0, 100, std::to_string(20 + rank), "10");
  for (int rank : {0, 1}) // of rank 1 by a process between them, which has no log
    with_steps(false, rank, 10, 100, std::to_string(30 + rank), rank ? "27 21 10" : "20 10");
  EXPECT_EQ(attempts(), (Words{"0-1 of 2", "0-1 of 2"}));
  EXPECT_EQ(run.chosen, 0u);
  EXPECT_EQ(run.count, 2u);
  EXPECT_EQ(run.processes[0].identity.pid, 20);
  EXPECT_EQ(run.attempts[1].told_by, SL_TOLD_parent);
  EXPECT_NE(std::string(note.text).find("holds 1 run and processes beside it without steps: run 1 (began 2023-11-14 "
                                        "22:13:20 UTC, 2 of 2 ranks) is used; --run 2 shows the other"),
            std::string::npos)
      << note.text;
  ASSERT_EQ(open("2"), 0);
  EXPECT_EQ(run.processes[1].identity.pid, 31);
}

TEST_F(RunAttempts, AProgramThatLooksAtTheGpuAndStartsTheTrainingIsNoRunThatCounts) {
  with_steps(false, 0, 0, 100, "20", "10", {{"rank", ""}, {"world_size", ""}});
  with_steps(true, 0, 10, 90, "30", "20 10", {{"rank", ""}, {"world_size", ""}});
  EXPECT_EQ(attempts(), (Words{"0 of -1", "0 of -1"}));
  EXPECT_EQ(run.chosen, 1u);
  EXPECT_TRUE(run.attempts[0].attends);
}

TEST_F(RunAttempts, AProcessThatTrainsOrHasAnotherParentOrRankIsNobodysAttendant) {
  with_steps(true, 0, 0, 100, "20", "10");
  with_steps(true, 0, 10, 100, "30", "20 10");  // trains
  with_steps(false, 0, 20, 100, "31", "10");    // a brother
  with_steps(false, 1, 30, 100, "32", "20 10"); // another rank
  with_steps(false, 0, 40, 100, "33", "20", {{"host", "b"}});
  with_steps(false, 0, 200, 300, "34", "20"); // that 20 has ended
  ASSERT_EQ(open(), 0) << error.text;
  for (size_t i = 0; i < run.attempt_count; i++)
    EXPECT_FALSE(run.attempts[i].attends) << i;
}

TEST_F(RunAttempts, StepsOfASlurmJobAreRunsAndAreChosenByTheirIds) {
  for (int step : {0, 1})
    for (int rank : {0, 1})
      process(rank, 20 * step, 20 * step + 10, {{"slurm_job_id", "4711"}, {"slurm_step_id", std::to_string(step)}});
  EXPECT_EQ(attempts(), (Words{"0-1 of 2", "0-1 of 2"}));
  for (const auto &[word, chosen] : std::map<const char *, size_t>{
           {"1", 0}, {"2", 1}, {"4711.0", 0}, {"slurm 4711.0", 0}, {"4711.1", 1}, {"4711", 1}}) {
    ASSERT_EQ(open(word), 0) << word;
    EXPECT_EQ(run.chosen, chosen) << word;
  }
  for (const char *word : {"3", "0", "471", "4711.2", "slurm"}) {
    EXPECT_EQ(open(word), -EINVAL) << word;
    EXPECT_NE(std::string(error.text).find("has runs 1 to 2, and no '"), std::string::npos) << error.text;
  }
}

TEST_F(RunAttempts, TorchrunsThatSlurmStartedOneByOneAreOneRun) {
  for (int rank : {0, 1})
    process(rank, 0, 10,
            {{"slurm_job_id", "4711"},
             {"slurm_step_id", std::to_string(rank)},
             {"host", rank ? "b" : "a"},
             {"torchelastic_run_id", "x"}});
  EXPECT_EQ(attempts(), (Words{"0-1 of 2"}));
}

TEST_F(RunAttempts, AJobArrayIsAsManyRunsAlsoWhenTheirStartsInterleave) {
  for (int rank = 0; rank < 2; rank++)
    for (int element = 0; element < 3; element++)
      process(rank, rank * 3 + element, 20, {{"slurm_job_id", std::to_string(100 + element)}});
  EXPECT_EQ(attempts(), (Words{"0-1 of 2", "0-1 of 2", "0-1 of 2"}));
  for (const auto *process = run.processes; process < run.processes + run.count; process++)
    EXPECT_STREQ(process->identity.name, "slurm 102");
}

// Ranks of the first come one by one between those of the others, so that every place is free for a while.
TEST_F(RunAttempts, RunsAtTheSameTimeWithoutIdsAreToldByTheirCommunicators) {
  for (int i = 0; i < 3; i++) {
    Fleet job;
    job.ranks = 4;
    job.ranks_per_host = 2;
    job.steps = 1;
    job.start_ns += i * 2'300'000;
    for (int late = 0; late < 2; late++) { // half of the ranks begin later: ranks 1 and 3, or 0 and 2
      Fleet half = job;
      half.infos["start_ns"] = std::to_string(job.start_ns + late * 50'000'000);
      half.absent = (late + i) % 2 ? FleetRanks{1, 3} : FleetRanks{0, 2};
      fleet(half);
    }
  }
  EXPECT_EQ(attempts(), (Words{"0-3 of 4", "0-3 of 4", "0-3 of 4"}));
  for (size_t i = 0; i < run.attempt_count; i++)
    EXPECT_EQ(run.attempts[i].told_by, SL_TOLD_communicator);
}

TEST_F(RunAttempts, RunsAtTheSameTimeWithoutIdsAreToldByTheirLaunchers) {
  process(0, 0, 100, {{"ppid", "10"}, {"world_size", "3"}});
  process(1, 1, 100, {{"ppid", "11"}, {"world_size", "3"}});
  process(1, 2, 100, {{"ppid", "10"}, {"world_size", "3"}});
  process(0, 3, 100, {{"ppid", "11"}, {"world_size", "3"}});
  process(2, 4, 100, {{"ppid", "11"}, {"world_size", "3"}});
  process(2, 5, 100, {{"ppid", "10"}, {"world_size", "3"}});
  EXPECT_EQ(attempts(), (Words{"0-2 of 3", "0-2 of 3"}));
  for (const auto *process = run.processes; process < run.processes + run.count; process++)
    EXPECT_EQ(process->identity.parent_pid, 11);
}

TEST_F(RunAttempts, AHostWhoseClockIsBehindIsOfTheSameRun) {
  Fleet job;
  job.ranks = 4;
  job.ranks_per_host = 2;
  job.steps = 1;
  job.clocks_ns[1] = -60'000 * 1'000'000ll;
  fleet(job);
  EXPECT_EQ(attempts(), (Words{"0-3 of 4"}));
  job.start_ns += 600 * second;
  fleet(job);
  EXPECT_EQ(attempts(), (Words{"0-3 of 4", "0-3 of 4"}));
}

TEST_F(RunAttempts, TheEndOfALogIsReadFromItsLastSegments) {
  process(0, 0, 10);
  uint64_t end_ns = 0;
  ASSERT_EQ(sl_run_process_end((directory / "process-0").c_str(), &end_ns, &error), 0) << error.text;
  EXPECT_EQ(end_ns, begin + 10 * second);
}

} // namespace

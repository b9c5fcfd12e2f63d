/* Who died first, in what order, and of what, also where hosts' clocks differ. */
#include "fakes/command.h"
#include "fakes/fleet.h"

#include <filesystem>
#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

constexpr uint64_t ms = 1'000'000;

class Deaths : public testing::Test {
protected:
  void SetUp() override {
    job.ranks = 16;
    job.ranks_per_host = 4;
    job.steps = 3;
  }
  std::string oom(std::vector<std::string> more = {}) {
    std::filesystem::remove_all(run);
    write_fleet(run, job);
    std::vector<std::string> words = {"oom", run};
    words.insert(words.end(), more.begin(), more.end());
    CommandResult result = shardledger(words);
    EXPECT_EQ(result.status, 0) << result.error;
    return result.out;
  }
  std::string ask(const std::string &sql) {
    const std::string out = shardledger({"query", sql, run, "--csv"}).out;
    return out.substr(out.find('\n') + 1);
  }
  TemporaryDirectory directory;
  std::string run = directory / "run";
  Fleet job;
};

TEST_F(Deaths, TheFirstIsToldByOneClock) {
  job.clocks_ns[1] = -60'000 * (int64_t)ms; /* ranks 4 to 7 seem to die a minute before all others */
  job.deaths = {{{9}, Fleet::End::refused, 2, 0},
                {{4, 5, 6, 7}, Fleet::End::refused, 2, 100 * ms},
                {fleet_ranks("0-3,8,10-15"), Fleet::End::waits, 2, 200 * ms}};
  const std::string out = oom();
  EXPECT_TRUE(contains(out, "Out of memory: rank 9, in step 2")) << out;
  EXPECT_TRUE(contains(out, "\n9                1  first: out of memory                -")) << out;
  EXPECT_TRUE(contains(out, "\n4-7              4  out of memory                100.0 ms")) << out;
  EXPECT_TRUE(contains(
      out, "\n0-3,8,10-15     11  waiting                        2.20 s  AllGather of Model.blocks.2, call 10 of "))
      << out;
  EXPECT_TRUE(contains(out, "Other hosts' clocks are known to ")) << out;
  EXPECT_FALSE(contains(out, "may have died before")) << out;
}

TEST_F(Deaths, AKillBeforeARefusalIsTheFirst) {
  job.deaths = {{{12}, Fleet::End::killed, 2, 0}, {{1}, Fleet::End::refused, 2, 50 * ms}};
  const std::string out = oom();
  EXPECT_TRUE(contains(out, "\nRank 12 died 50.0 ms before that: its log just stops (killed, or crashed); 'shardledger "
                            "oom --rank 12' shows what it held\n"))
      << out;
  EXPECT_TRUE(contains(out, "\n12        1  first: killed")) << out;
  EXPECT_TRUE(contains(out, "\n1         1  out of memory          50.0 ms")) << out;
}

TEST_F(Deaths, OfJobsThatWaitTheKilledRankIsShown) {
  job.deaths = {{{6}, Fleet::End::killed, 1, 0}, {fleet_ranks("0-5,7-15"), Fleet::End::waits, 1, 10 * ms}};
  const std::string out = oom();
  EXPECT_TRUE(contains(out, "Rank 6's log just stops, in step 1")) << out;
  EXPECT_EQ(
      ask("SELECT count(*), min(waiting_since_ns) - (SELECT at_ns FROM rank_death WHERE rank = 6) FROM rank_death "
          "WHERE how = 'waiting' AND waiting_in = 'AllGather' AND waiting_seq = 6"),
      "15,10000000\n");
}

TEST_F(Deaths, HostsAreComparedThroughOthers) {
  job.ranks = 12;
  job.stages = 2; /* of six ranks: hosts 0 and 1 share the first one, hosts 1 and 2 the second */
  job.clocks_ns = {{1, 5'000 * (int64_t)ms}, {2, -7'000 * (int64_t)ms}};
  job.deaths = {{{11}, Fleet::End::refused, 2, 0}, {{0}, Fleet::End::refused, 2, 30 * ms}};
  const std::string out = oom();
  EXPECT_EQ(ask("SELECT host, offset_ns, hops, collectives, error_ns FROM host_clock ORDER BY host"),
            "gpu-node-00,0,0,,0\ngpu-node-01,5000000000,1,12,900000\ngpu-node-02,-7000000000,2,12,1800000\n");
  EXPECT_TRUE(contains(out, "Out of memory: rank 11")) << out;
  EXPECT_EQ(ask("SELECT DISTINCT spread_ns FROM collective_cost WHERE spread_ns IS NOT NULL"), "0\n")
      << "arrivals are on one clock, too";
}

TEST_F(Deaths, TheOrderIsUnknownWhereClocksCannotBeCompared) {
  job.stages = 4; /* one a host */
  job.clocks_ns[3] = -60'000 * (int64_t)ms;
  job.deaths = {{{2}, Fleet::End::refused, 2, 0}, {{13}, Fleet::End::refused, 2, 0}};
  const std::string out = oom();
  EXPECT_TRUE(contains(out, "Out of memory: rank 2, in step 2")) << "not whose clock seems to be behind: " << out;
  EXPECT_TRUE(contains(out, "2 requests were refused on all ranks together; this is the first that ended a rank, of "
                            "those whose hosts' clocks can be compared\n"))
      << out;
  EXPECT_TRUE(contains(out, "The order of ranks 13 is unknown: no collective that ended joins their hosts to the first "
                            "rank's"))
      << out;
  EXPECT_TRUE(contains(oom({"--deaths", "--csv"}), "13,gpu-node-03,out of memory,1699999941212250000,,,,unknown"))
      << oom({"--deaths", "--csv"});
}

TEST_F(Deaths, WithinTheErrorOfTheClocksTheFirstIsInDoubt) {
  job.deaths = {{{2}, Fleet::End::refused, 2, 0}, {{13}, Fleet::End::refused, 2, 100'000}};
  const std::string out = oom();
  EXPECT_TRUE(contains(out, "So ranks 13 may have died before the first")) << out;
}

/* The skewed clock of a killed rank's host neither hides that it was first, nor makes it so. */
TEST_F(Deaths, KillsBeforeTheRefusalAreToldByOneClockAndOnlyWithoutDoubt) {
  job.clocks_ns = {{1, 60'000 * (int64_t)ms}, {2, -60'000 * (int64_t)ms}};
  job.deaths = {{{5, 6}, Fleet::End::killed, 2, 0},    /* a minute later by their own clock */
                {{9}, Fleet::End::killed, 2, 90 * ms}, /* a minute before, by its own */
                {{1}, Fleet::End::refused, 2, 50 * ms},
                {{0}, Fleet::End::killed, 2, 60 * ms}};
  std::string out = oom();
  EXPECT_TRUE(contains(out, "\nRanks 5-6 died up to 50.0 ms before that: their logs just stop (killed, or crashed); "
                            "'shardledger oom --rank 5' shows what it held\n"))
      << out;
  job.deaths[0].after_ns = 50 * ms - 100'000; /* within the error of the clocks */
  out = oom();
  EXPECT_FALSE(contains(out, " before that: ")) << out;
}

TEST_F(Deaths, DataHasEveryRank) {
  job.deaths = {{{2}, Fleet::End::refused, 2, 0}, {{4, 5, 6}, Fleet::End::killed, 2, 0}};
  const std::string json = oom({"--json"});
  EXPECT_TRUE(contains(json, "\"deaths\"")) << json;
  for (const char *rank : {"2", "4", "5", "6"})
    EXPECT_TRUE(contains(json, std::string("\"rank\": ") + rank)) << json;
}

} // namespace

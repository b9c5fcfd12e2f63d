/*
 * Memory runs out on our side, in each command, at one request or from one on: it ends with a sentence and 2, or it
 * could do without and ends with all of its output. Never a signal, a half output, or a file under construction.
 */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"
#include "fakes/rounds.h"
#include "fakes/sanitizers.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace fs = std::filesystem;

namespace {

struct Case {
  const char *name;
  std::vector<std::string> arguments; /* RUN: a run with its ledger; SITES: another, with lines of code; LOGS: one
                                         without; OUT: an empty directory */
};

const Case cases[] = {
    {"ingest", {"ingest", "LOGS", "-o", "OUT/ledger.sqlite", "--jobs", "1"}},
    {"ingest_at_once", {"ingest", "LOGS", "-o", "OUT/ledger.sqlite", "--jobs", "2"}},
    {"merge", {"merge", "LOGS", "-o", "OUT/ledger.sqlite"}},
    {"info", {"info", "RUN"}},
    {"peaks", {"peaks", "RUN"}},
    {"peaks_by_step", {"peaks", "RUN", "--by", "step"}},
    {"snapshots", {"snapshots", "RUN"}},
    {"nccl", {"nccl", "RUN"}},
    {"device", {"device", "RUN"}},
    {"oom", {"oom", "RUN"}},
    {"survivors", {"survivors", "RUN"}},
    {"explain", {"explain", "1", "RUN"}},
    {"whatif", {"whatif", "RUN", "--alloc-conf", "max_split_size_mb:32", "--optimizer", "adamw-fused", "--floor"}},
    {"advise", {"advise", "RUN", "--budget", "1700MiB"}},
    {"report", {"report", "RUN", "-o", "OUT/report.html"}},
    {"report_sites", {"report", "SITES", "-o", "OUT/report.html"}},
    {"export_nsys", {"export", "RUN", "-f", "nsys", "-o", "OUT/run.sqlite"}},
    {"export_kineto", {"export", "RUN", "-f", "kineto", "-o", "OUT/traces"}},
    {"export_kineto_sites", {"export", "SITES", "-f", "kineto", "-o", "OUT/traces"}},
    {"export_perfetto", {"export", "RUN", "-f", "perfetto", "-o", "OUT/run.pftrace"}},
    {"export_snapshot", {"export", "RUN", "-f", "snapshot", "-o", "OUT/snapshots"}},
    {"diff", {"diff", "RUN", "RUN"}},
    {"check", {"check", "RUN", "--max-peak", "40GiB"}},
    {"watch", {"watch", "--once", "LOGS"}},
    {"watch_json", {"watch", "--once", "LOGS", "--json"}},
    {"query", {"query", "SELECT * FROM step", "RUN"}},
    {"dump", {"dump", "LOGS", "--limit", "500"}},
    {"rules", {"rules", "RUN"}},
};

class OutOfMemory : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    if (SANITIZED)
      GTEST_SKIP() << "the sanitizer has its own malloc";
    const struct {
      const char *argument, *recorded;
      bool has_ledger;
    } runs[] = {{"RUN", "fsdp2-2rank", true}, {"LOGS", "fsdp2-2rank", false}, {"SITES", "sites", true}};
    const std::vector<std::string> &arguments = GetParam().arguments;
    for (const auto &run : runs)
      if (std::count(arguments.begin(), arguments.end(), run.argument)) {
        fs::copy(fs::path(SL_TEST_DATA) / run.recorded, directory / run.argument, fs::copy_options::recursive);
        if (run.has_ledger) {
          ASSERT_EQ(shardledger({"ingest", directory / run.argument}).status, 0);
        }
      }
  }

  CommandResult run(unsigned long at, bool on, const char *locale = "C.UTF-8") {
    fs::remove_all(out);
    fs::create_directory(out);
    CommandOptions options;
    options.environment = {{"LD_PRELOAD", std::string(SL_BUILD_DIR) + "/fakes/libfailing_malloc.so"},
                           {"FAIL_AT", std::to_string(at)},
                           {"FAIL_ON", on ? "1" : "0"},
                           {"LC_ALL", locale}};
    if (at == 0)
      options.environment["FAIL_COUNT"] = directory / "count";
    std::vector<std::string> arguments = GetParam().arguments;
    for (std::string &argument : arguments) {
      if (argument.rfind("OUT", 0) == 0)
        argument.replace(0, 3, out);
      else if (argument == "RUN" || argument == "LOGS" || argument == "SITES")
        argument = directory / argument;
    }
    return shardledger(arguments, options);
  }

  /* The rows of a ledger, which are read once as long as its bytes are the same. */
  const std::vector<std::string> &rows_of(const std::string &ledger) {
    std::string bytes = read_file(ledger);
    if (bytes != known_bytes) {
      known_rows = ledger_dump(ledger);
      known_bytes = std::move(bytes);
    }
    return known_rows;
  }

  /* What was written, by file: of ledgers their rows, since pages may lie elsewhere; of other databases only that they
   * are there. */
  std::map<std::string, std::vector<std::string>> written() {
    std::map<std::string, std::vector<std::string>> found;
    for (const auto &entry : fs::recursive_directory_iterator(out)) {
      std::vector<std::string> &content = found[fs::relative(entry.path(), out)];
      if (entry.path().filename() == "ledger.sqlite")
        content = rows_of(entry.path());
      else if (entry.is_regular_file() && entry.path().extension() != ".sqlite")
        content = {read_file(entry.path())};
    }
    return found;
  }

  /* The first requests one by one, then some in each order of magnitude, and any; under scripts/stress each of all. */
  std::set<unsigned long> moments(unsigned long count) {
    std::set<unsigned long> found;
    std::minstd_rand random(1);
    for (unsigned long at = 1; at <= std::min(count, 12ul); at++)
      found.insert(at);
    for (double at = 12; at < (double)count; at *= 1.9)
      found.insert((unsigned long)at);
    const unsigned long more = (unsigned long)rounds(8);
    for (unsigned long i = 0; i < std::min(more, count); i++)
      found.insert(more < count ? 1 + random() % count : i + 1);
    return found;
  }

  TemporaryDirectory directory;
  std::string out = directory / "out", known_bytes;
  std::vector<std::string> known_rows;
};

TEST_P(OutOfMemory, EndsWithASentenceOrWithAllOfTheOutput) {
  const CommandResult whole = run(0, false);
  ASSERT_EQ(whole.status, 0) << whole.error;
  const auto files = written();
  const CommandResult plain = run(0, false, "C"); /* what a locale that could not be loaded comes to */
  const unsigned long count = std::stoul(read_file(directory / "count"));
  ASSERT_GT(count, 20u) << "requests are counted";
  int said = 0;
  for (bool on : {false, true})
    for (unsigned long at : moments(count)) {
      const CommandResult result = run(at, on);
      SCOPED_TRACE("request " + std::to_string(at) + (on ? " and all that follow" : "") + ": " + result.error);
      if (result.status == 0) {
        ASSERT_TRUE(result.out == whole.out || result.out == plain.out) << result.out;
        ASSERT_TRUE(written() == files);
        continue;
      }
      said++;
      ASSERT_EQ(result.status, 2);
      ASSERT_EQ(result.error.rfind("shardledger: ", 0), 0u);
      for (const auto &entry : fs::recursive_directory_iterator(out))
        ASSERT_NE(entry.path().extension(), ".part") << entry.path();
    }
  EXPECT_GT(said, 0);
}

INSTANTIATE_TEST_SUITE_P(Every, OutOfMemory, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

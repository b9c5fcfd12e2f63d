// What the program marks: a row each, where it was, and no difference between steps that mark the same.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;

class Marks : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("marks-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    log = std::make_unique<LogBuilder>(directory / "host-1-1", 50);
    log->module(1, 0, "", "Model").module(2, 1, "blocks.0", "Block");
  }
  void TearDown() override {
    log.reset();
    fs::remove_all(directory);
  }

  void step(int number, const std::function<void(LogBuilder::Thread &)> &middle) {
    auto &main = log->thread(1);
    const uint64_t at = 1000 + 1000 * (uint64_t)number, id = 1 + (uint64_t)number;
    main.at(at).range_start(id, "step " + std::to_string(number), SL_KIND_step, (uint64_t)number);
    main.at(at + 10).range_push("blocks.0", SL_KIND_forward, 2).at(at + 20);
    middle(main);
    main.at(at + 30).range_pop().at(at + 60).range_push("Adam", SL_KIND_optimizer_step, 0).range_pop();
    main.at(at + 900).range_end(id);
  }
  Rows rows(const std::string &sql) {
    sl_error note{}, error{};
    const std::string output = directory / "ledger.sqlite";
    if (log) {
      log->finish();
      EXPECT_EQ(sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error), 0) << error.text;
      log.reset();
    }
    return ledger_rows(output, sql);
  }

  fs::path directory;
  std::unique_ptr<LogBuilder> log;
};

TEST_F(Marks, EachHasItsInstantItsDomainAndWhatItsThreadWasDoing) {
  log->thread(1).at(500).range_mark("data ready", SL_KIND_user);
  step(0, [](auto &main) { main.range_mark("spike", 0, 7, "apex").range_mark("plain", 0, 0, ""); });
  EXPECT_EQ(
      rows("SELECT m.name, domain, value, at_ns, m.period, m.step, p.kind, o.fqn FROM mark m"
           " LEFT JOIN phase p ON p.id = m.phase_id LEFT JOIN module o ON o.id = m.module_id ORDER BY at_ns, m.name"),
      (Rows{"data ready|shardledger||500|0|||", "plain|||1020|1|0|forward|blocks.0",
            "spike|apex|7|1020|1|0|forward|blocks.0"}));
  EXPECT_EQ(rows("SELECT * FROM pragma_foreign_key_check('mark')"), Rows{});
}

TEST_F(Marks, StepsThatMarkTheSameRepeatEachOtherAndOneThatMarksAnythingElseIsKept) {
  for (int i = 0; i < 18; i++)
    step(i, [i](auto &main) {
      main.range_mark("batch " + std::to_string(i), SL_KIND_user, (uint64_t)i);
      if (i == 14)
        main.range_mark("loss spike", SL_KIND_user);
    });
  EXPECT_EQ(rows("SELECT step FROM step WHERE same_as IS NOT NULL ORDER BY step"),
            (Rows{"10", "11", "12", "13", "15", "16"}));
  EXPECT_EQ(rows("SELECT name, step FROM mark WHERE step >= 9 ORDER BY at_ns, name"),
            (Rows{"batch 9|9", "batch 14|14", "loss spike|14", "batch 17|17"}));
  EXPECT_EQ(rows("SELECT * FROM pragma_foreign_key_check('mark')"), Rows{});
}

} // namespace

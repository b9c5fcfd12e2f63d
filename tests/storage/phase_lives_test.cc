// Ranges that end in an order that none of them foresees: within each other's steps, twice, or never. Each is told by a
// ledger, and none by memory that is not its own (preset debug looks).
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>

namespace {

namespace fs = std::filesystem;
using Rows = std::vector<std::string>;

class PhaseLives : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("phase-lives-" + std::to_string(getpid()));
    fs::remove_all(directory);
    log = std::make_unique<LogBuilder>(directory / "host-1-1", 1);
    log->info("rank", "0");
    log->module(1, 0, "", "Model", SL_MODULE_ROOT, 0);
    log->module(2, 1, "a", "Block", SL_MODULE_FSDP, 1);
    log->module(3, 1, "b", "Block", SL_MODULE_FSDP, 1);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  LogBuilder::Thread &thread(uint32_t ordinal, uint64_t at) {
    return log->thread(ordinal).at(at);
  }

  Rows rows(const std::string &sql) {
    if (!built) {
      built = true;
      log->finish();
      sl_error note{}, error{};
      EXPECT_EQ(sl_ledger_build(directory.c_str(), ledger().c_str(), nullptr, &note, &error), 0) << error.text;
    }
    return ledger_rows(ledger(), sql);
  }
  Rows phases() {
    return rows("SELECT c.name, c.start_ns, c.end_ns, coalesce(p.name, '') FROM phase c LEFT JOIN phase p ON p.id = "
                "c.parent_id ORDER BY c.id");
  }
  Rows steps() {
    return rows("SELECT step, start_ns, end_ns FROM step");
  }
  std::string ledger() const {
    return directory / "ledger.sqlite";
  }

  fs::path directory;
  std::unique_ptr<LogBuilder> log;
  bool built = false;
};

TEST_F(PhaseLives, AModulesBackwardMayEndAfterTheBackwardPassAndTheStepThatItWasIn) {
  thread(1, 10).range_push("backward", SL_KIND_backward, 0);
  thread(1, 20).range_start(1, "step 0", SL_KIND_step, 0);
  thread(2, 30).range_start(2, "a", SL_KIND_backward, 2);
  thread(1, 40).range_pop();
  thread(1, 50).range_end(1);
  thread(1, 60).range_end(2);
  EXPECT_EQ(phases(), (Rows{"backward|10|40|", "step 0|20|50|", "a|30|40|backward"}));
}

TEST_F(PhaseLives, AStepThatBeginsInAnotherOneEndsIt) {
  thread(1, 10).range_start(1, "step 7", SL_KIND_step, 7);
  thread(1, 20).range_start(2, "step 8", SL_KIND_step, 8);
  thread(1, 30).range_end(1);
  thread(1, 40).range_push("mine", SL_KIND_user).at(50).range_pop();
  EXPECT_EQ(steps(), (Rows{"7|10|20", "8|20|50"}));
  EXPECT_EQ(phases(), (Rows{"step 7|10|20|", "step 8|20||", "mine|40|50|step 8"}));
}

TEST_F(PhaseLives, ARangeInABackwardPassThatEndedTwoStepsAgoKeepsItAsItsParent) {
  thread(1, 10).range_start(1, "backward", SL_KIND_backward, 0);
  thread(1, 20).range_start(2, "step 0", SL_KIND_step, 0);
  thread(1, 30).range_end(2);
  thread(1, 40).range_push("a", SL_KIND_backward, 2);
  thread(1, 50).range_push("mine", SL_KIND_user);
  thread(2, 60).range_end(1);
  thread(1, 70).range_start(3, "step 2", SL_KIND_step, 2);
  thread(1, 80).range_pop();
  thread(1, 90).range_end(3);
  thread(1, 100).range_pop();
  EXPECT_EQ(phases(), (Rows{"backward|10|60|", "step 0|20|30|", "a|40|60|backward", "mine|50|80|a", "step 2|70|90|"}));
}

TEST_F(PhaseLives, TheEndOfARangeWhosePhaseEndedBeforeItEndsNothing) {
  thread(1, 10).range_push("mine", SL_KIND_user);
  thread(2, 20).range_start(1, "backward", SL_KIND_backward, 0);
  thread(1, 30).range_push("a", SL_KIND_backward, 2);
  thread(2, 40).range_end(1); // and a's with it
  thread(2, 50).range_start(2, "step 5", SL_KIND_step, 5);
  thread(2, 60).range_end(2);
  thread(1, 70).range_pop().at(80).allocator(SL_SEGMENT_ALLOC, 0x100000, 2 << 20);
  thread(1, 90).allocator(SL_ALLOC, 0x100000, 512);
  thread(1, 100).range_pop();
  EXPECT_EQ(rows("SELECT p.name FROM allocation a JOIN phase p ON p.id = a.phase_id"), Rows{"mine"});
  EXPECT_EQ(rows("SELECT name, end_ns FROM phase WHERE name IN ('a', 'mine')"), (Rows{"mine|100", "a|40"}));
  EXPECT_EQ(rows("SELECT * FROM gap"), Rows{});
}

TEST_F(PhaseLives, AModulesBackwardThatIsPushedInNoBackwardPassLastsOverSteps) {
  thread(1, 10).range_start(1, "backward", SL_KIND_backward, 0);
  thread(3, 20).range_push("a", SL_KIND_backward, 2);
  thread(1, 30).range_start(2, "step 0", SL_KIND_step, 0);
  thread(1, 40).range_end(2);
  thread(3, 50).range_end(1);
  thread(1, 60).range_start(3, "step 1", SL_KIND_step, 1);
  thread(1, 70).range_end(3);
  thread(2, 80).range_start(4, "mine", SL_KIND_user, 3);
  thread(2, 90).range_end(9);
  EXPECT_EQ(phases(), (Rows{"backward|10|50|", "a|20|50|backward", "step 0|30|40|", "step 1|60|70|", "mine|80||"}));
}

TEST_F(PhaseLives, StepsOfManyThreadsAreOneSequence) {
  constexpr uint64_t count = 60;
  for (uint64_t i = 0; i < count; i++) { // each ends the one that it knows of, late
    thread(1 + i % 6, 10 * i + 10).range_start(i + 1, "step", SL_KIND_step, i);
    if (i >= 3)
      thread(1 + (i + 1) % 6, 10 * i + 15).range_end(i - 2);
  }
  EXPECT_EQ(rows("SELECT count(*), sum(end_ns - start_ns = 10) FROM step"), Rows{"60|59"});
}

TEST_F(PhaseLives, RangesNestAsDeepAsAProgramLikes) {
  constexpr uint64_t depth = 2000;
  for (uint64_t i = 0; i < depth; i++)
    thread(1, 10 + i).range_push("r" + std::to_string(i), SL_KIND_user);
  for (uint64_t i = 0; i < depth; i++)
    thread(1, 10 + depth + i).range_pop();
  EXPECT_EQ(rows("SELECT count(*), min(end_ns - start_ns), max(end_ns - start_ns) FROM phase"), Rows{"2000|1|3999"});
  EXPECT_EQ(rows("SELECT count(*) FROM phase c JOIN phase p ON p.id = c.parent_id WHERE p.start_ns < c.start_ns AND "
                 "p.end_ns > c.end_ns"),
            Rows{"1999"});
  EXPECT_EQ(rows("SELECT * FROM gap"), Rows{});
}

TEST_F(PhaseLives, WhereAThreadLostAStretchItsRangesEndAndNoOthers) {
  thread(1, 10).range_start(1, "step 0", SL_KIND_step, 0);
  thread(1, 20).range_push("Model", SL_KIND_forward, 1);
  thread(2, 30).range_push("theirs", SL_KIND_user);
  thread(1, 40).gap("log", "no segment was ready", 100);
  thread(1, 50).allocator(SL_SEGMENT_ALLOC, 0x100000, 2 << 20);
  thread(1, 60).allocator(SL_ALLOC, 0x100000, 512);
  thread(1, 70).range_push("later", SL_KIND_user).at(80).range_pop();
  thread(1, 90).range_pop(); // Model's, or that of a range that was lost
  thread(2, 100).range_pop();
  thread(1, 110).range_end(1);
  EXPECT_EQ(phases(), (Rows{"step 0|10|110|", "Model|20|40|step 0", "theirs|30|100|step 0", "later|70|80|step 0"}));
  EXPECT_EQ(rows("SELECT p.name FROM allocation a JOIN phase p ON p.id = a.phase_id"), Rows{"step 0"});
}

TEST_F(PhaseLives, ATagMayNameAModuleOfAnyNumber) {
  thread(1, 10).range_start(1, "step 0", SL_KIND_step, 0);
  thread(1, 20).allocator(SL_SEGMENT_ALLOC, 0x100000, 2 << 20);
  thread(1, 30).allocator(SL_ALLOC, 0x100000, 512);
  thread(1, 40).tag(0x100000, "param", UINT32_MAX, "weight");
  thread(1, 50).range_end(1);
  EXPECT_EQ(rows("SELECT category, bytes FROM peak_owner WHERE step IS NOT NULL"), Rows{"param|512"});
}

TEST_F(PhaseLives, APeriodHasTheNameOfTheOutermostRangesThatEndWithItOrWithTheLog) {
  thread(1, 10).range_push("epoch", SL_KIND_user); // goes on in step 0
  thread(1, 20).range_push("a", SL_KIND_eval, 2).at(30).range_pop();
  thread(1, 40).range_start(1, "step 0", SL_KIND_step, 0).at(50).range_end(1).at(60).range_pop();
  thread(1, 70).range_push("validate", SL_KIND_user).range_push("a", SL_KIND_eval, 2).at(90).range_pop().range_pop();
  thread(1, 100).range_push("a", SL_KIND_eval, 2).at(110).range_pop();
  thread(1, 120).range_start(2, "step 1", SL_KIND_step, 1).at(130).range_end(2);
  thread(1, 140).range_push("a", SL_KIND_eval, 2).at(150).range_pop();
  thread(1, 160).range_push("serve", SL_KIND_user).range_push("a", SL_KIND_eval, 2).at(190).range_pop(); // killed
  EXPECT_EQ(rows("SELECT kind, coalesce(name, '') FROM period ORDER BY period"),
            (Rows{"setup|evaluation", "step|", "between|validate", "step|", "end|serve"}));
}

} // namespace

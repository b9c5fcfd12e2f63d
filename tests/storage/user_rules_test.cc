// Rules of users: what is accepted, what is refused and in which words, and what they do to a job.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/rules/categories.h"
#include "storage/rules/user_rules.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20;

class UserRules : public ::testing::Test {
protected:
  void TearDown() override {
    sl_user_rules_free(rules);
  }

  int parse(const std::string &text) {
    rules = sl_user_rules_free(rules);
    error.text[0] = 0;
    return sl_user_rules_parse(text.c_str(), "my.rules", &rules, &error);
  }

  // Refused, with all parts in the sentence and nothing of the file in force.
  void expect_refusal(const std::string &text, const std::vector<std::string> &parts) {
    EXPECT_EQ(parse(text), -EINVAL) << text;
    EXPECT_EQ(rules, nullptr);
    for (const std::string &part : parts)
      EXPECT_NE(std::string(error.text).find(part), std::string::npos) << error.text;
  }

  std::vector<sl_user_rule> list() {
    size_t count = 0;
    const sl_user_rule *all = sl_user_rules_list(rules, &count);
    return {all, all + count};
  }

  sl_user_rules *rules = nullptr;
  sl_error error{};
};

TEST_F(UserRules, EverySortOfRuleIsRead) {
  ASSERT_EQ(parse("# what our trainer says\n"
                  "range iteration* kind step   # one of ours\n"
                  "\n"
                  "range \"forward pass\" kind forward module=model.*\n"
                  "\trange gather category all_gather\r\n"
                  "module lora_* category lora_state"),
            0)
      << error.text;
  auto all = list();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].type, SL_USER_RULE_range_kind);
  EXPECT_EQ(all[0].kind, SL_KIND_step);
  EXPECT_EQ(all[0].line, 2u);
  EXPECT_STREQ(all[1].glob, "forward pass");
  EXPECT_STREQ(all[1].module, "model.*");
  EXPECT_EQ(all[2].category, SL_CATEGORY_all_gather);
  EXPECT_EQ(all[3].type, SL_USER_RULE_module_category);
  EXPECT_EQ(all[3].category, SL_CATEGORY_built_in) << "the first of one's own";
  EXPECT_STREQ(all[3].category_name, "lora_state");
}

TEST_F(UserRules, ANumberSignInsideOfAWordIsACharacter) {
  ASSERT_EQ(parse("range Optimizer.step#AdamW* kind optimizer_step#no\n"), -EINVAL);
  ASSERT_EQ(parse("range Optimizer.step#AdamW* kind optimizer_step #yes\n"), 0) << error.text;
  EXPECT_STREQ(list()[0].glob, "Optimizer.step#AdamW*");
}

TEST_F(UserRules, AnEmptyFileIsNoRules) {
  EXPECT_EQ(parse("\n  # nothing\n"), 0);
  EXPECT_TRUE(list().empty());
}

TEST_F(UserRules, TheFirstRuleThatFitsIsFound) {
  ASSERT_EQ(parse("range fwd* kind forward\nrange f* kind eval\nrange * category temp\n"), 0);
  EXPECT_EQ(sl_user_rule_find(rules, SL_USER_RULE_range_kind, "fwd 1", nullptr)->kind, SL_KIND_forward);
  EXPECT_EQ(sl_user_rule_find(rules, SL_USER_RULE_range_kind, "fine", nullptr)->kind, SL_KIND_eval);
  EXPECT_EQ(sl_user_rule_find(rules, SL_USER_RULE_range_kind, "a fwd", nullptr), nullptr) << "the whole name counts";
  EXPECT_EQ(sl_user_rule_find(nullptr, SL_USER_RULE_range_kind, "fwd", nullptr), nullptr);
}

TEST_F(UserRules, MistakesAreNamedWithLineAndWhatIsAllowed) {
  expect_refusal("range a kind step\nrnage b kind step", {"my.rules:2: ", "'rnage'", "did you mean 'range'?"});
  expect_refusal("range x kind foward", {"my.rules:1: there is no kind 'foward'; did you mean 'forward'?",
                                         "step, forward, backward", "eval, user"});
  expect_refusal("range x kind record_function", {"there is no kind 'record_function'"});
  expect_refusal("range x category activatoin", {"there is no category 'activatoin'; did you mean 'activation'?"});
  expect_refusal("range x category Mine", {"there is no category 'Mine'", "sharded_param", "a-z, 0-9 and _"});
  expect_refusal("range x category unattributed", {"'unattributed'", "what no rule covers"});
  expect_refusal("module x kind forward", {"my.rules:1: only ranges have a kind", "module GLOB category CATEGORY"});
  expect_refusal("range x kind", {"not complete", "'range GLOB kind KIND [module=FQN-GLOB]'"});
  expect_refusal("range x knd step", {"'knd'", "did you mean 'kind'?"});
  expect_refusal("range x kind step now", {"one word too many: 'now'"});
  expect_refusal("range x kind forward module=", {"module= needs"});
  expect_refusal("range x kind step module=a", {"a step serves no module"});
  expect_refusal("range x category temp module=a", {"one word too many: 'module=a'"});
  expect_refusal("range \"x kind step", {"a \" has no other"});
  expect_refusal("range \"x\"y kind step", {"a blank is missing"});
  expect_refusal("range \"\" kind step", {"empty pattern"});
  expect_refusal("range x kind step\n\nrange x kind eval", {"my.rules:3: 'x'", "in line 1 already"});
}

TEST_F(UserRules, OwnCategoriesAreLimitedSoThatTagsKeepTheirs) {
  std::string text;
  for (int i = 0; i < 32; i++)
    text += "range r" + std::to_string(i) + " category mine_" + std::to_string(i) + "\n";
  EXPECT_EQ(parse(text), 0) << error.text;
  expect_refusal(text + "range more category mine_32", {"my.rules:33: one category too many: 'mine_32'"});
}

TEST_F(UserRules, FilesThatAreNoTextAreRefused) {
  fs::path path = fs::temp_directory_path() / ("rules-" + std::to_string(getpid()));
  std::ofstream(path, std::ios::binary) << std::string("range\0x", 7);
  EXPECT_EQ(sl_user_rules_read(path.c_str(), &rules, &error), -EINVAL);
  EXPECT_NE(std::string(error.text).find("is no file of rules"), std::string::npos) << error.text;
  fs::remove(path);
  EXPECT_EQ(sl_user_rules_read(path.c_str(), &rules, &error), -EINVAL);
  EXPECT_NE(std::string(error.text).find("can't be read: No such file"), std::string::npos) << error.text;
  EXPECT_EQ(sl_user_rules_read("/tmp", &rules, &error), -EINVAL);
  EXPECT_NE(std::string(error.text).find("is a directory"), std::string::npos) << error.text;
}

TEST_F(UserRules, TheExamplesInTheDocumentationAreRight) {
  int found = 0;
  for (const auto &entry : fs::directory_iterator(fs::path(SL_TEST_DATA) / "../../docs/rules"))
    if (entry.path().extension() == ".rules") {
      rules = sl_user_rules_free(rules);
      EXPECT_EQ(sl_user_rules_read(entry.path().c_str(), &rules, &error), 0) << error.text;
      EXPECT_GE(list().size(), 3u) << entry.path();
      found++;
    }
  EXPECT_GE(found, 2);
}

// What rules do to the ledger of a made-up job without the companion: only the user's own ranges.
class RulesInForce : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("rules-job-" + std::to_string(getpid()));
    fs::remove_all(directory);
    output = directory / "ledger.sqlite";
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  int build(const char *text) {
    sl_user_rules *rules = nullptr;
    if (text) {
      EXPECT_EQ(sl_user_rules_parse(text, "my.rules", &rules, &error), 0) << error.text;
    }
    sl_ledger_options options{};
    options.rules = rules;
    int r = sl_ledger_build(directory.c_str(), output.c_str(), &options, &note, &error);
    sl_user_rules_free(rules);
    return r;
  }

  std::vector<std::string> rows(const std::string &sql) {
    return ledger_rows(output, sql);
  }

  static std::string content(const fs::path &path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // Two iterations: forward with something kept and something passing, backward, optimizer.
  void job(LogBuilder &log) {
    auto &main = log.thread(1);
    main.at(50).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    for (uint64_t i = 0; i < 2; i++) {
      uint64_t t = 100 + 100 * i, a = 0x1000000 + 0x3e00 * i;
      main.at(t).range_push("iteration", 0, 0, "trainer");
      main.at(t + 10).range_push("fwd", 0, 0, "trainer").allocator(SL_ALLOC, a, 512);
      main.at(t + 11).range_push("scores", 0, 0, "trainer").allocator(SL_ALLOC, a + 0x200, 1024);
      main.at(t + 12).range_push("inner", 0, 0, "trainer").allocator(SL_ALLOC, a + 0x600, 2048);
      main.at(t + 13).range_pop("trainer").range_pop("trainer").range_pop("trainer");
      main.at(t + 20).range_push("bwd", 0, 0, "trainer");
      log.thread(2).at(t + 21).allocator(SL_ALLOC, a + 0xe00, 4096); // autograd's own thread
      main.at(t + 30).range_pop("trainer");
      main.at(t + 31).allocator(SL_FREE_REQUESTED, a, 512).allocator(SL_FREE_COMPLETED, a, 512);
      main.at(t + 40).range_push("opt", 0, 0, "trainer").allocator(SL_ALLOC, a + 0x1e00, 8192);
      main.at(t + 50).range_pop("trainer").range_pop("trainer");
    }
  }

  fs::path directory, output;
  sl_error note{}, error{};
};

const char *const kKinds = "range iteration kind step\nrange fwd kind forward\nrange bwd kind backward\n"
                           "range opt kind optimizer_step\n";

TEST_F(RulesInForce, WithoutRulesAJobWithoutTheCompanionHasNoSteps) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(nullptr), 0) << error.text;
  EXPECT_TRUE(rows("SELECT * FROM step").empty());
}

TEST_F(RulesInForce, RangesMappedToKindsMakeStepsPhasesAndCategories) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(kKinds), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, start_ns, end_ns FROM step ORDER BY step"),
            (std::vector<std::string>{"0|100|150", "1|200|250"}));
  EXPECT_EQ(rows("SELECT kind, name FROM phase WHERE step = 1 ORDER BY start_ns"),
            (std::vector<std::string>{"step|iteration", "forward|fwd", "user|scores", "user|inner", "backward|bwd",
                                      "optimizer_step|opt"}));
  EXPECT_EQ(
      rows("SELECT category, decided_by FROM allocation WHERE step = 0 ORDER BY alloc_ns"),
      (std::vector<std::string>{"activation|forward_activation", "other|forward_survivor", "other|forward_survivor",
                                "gradient|backward_gradient", "optstate|optimizer_state"}));
}

TEST_F(RulesInForce, TheInnermostRangeGivesTheCategoryAndATagOutranksIt) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
    log.thread(1).at(300).tag(0x1000000 + 0x600, "kv_cache");
  }
  ASSERT_EQ(build("range fwd category activation\nrange scores category attention_scores\n"), 0) << error.text;
  EXPECT_EQ(rows("SELECT category, decided_by FROM allocation WHERE alloc_ns < 120 ORDER BY alloc_ns"),
            (std::vector<std::string>{"activation|user_range", "attention_scores|user_range", "kv_cache|tag"}));
  EXPECT_EQ(rows("SELECT DISTINCT decided_by FROM allocation WHERE alloc_ns = 121"), (std::vector<std::string>{"none"}))
      << "outside of such ranges nothing changes";
}

TEST_F(RulesInForce, OwnCategoriesOfRulesAndOfTagsAreNotMixedUp) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    main.at(10).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).allocator(SL_ALLOC, 0x1000000, 512);
    main.tag(0x1000000, "from_a_tag").range_push("r", 0, 0, "x").allocator(SL_ALLOC, 0x1000200, 512);
    main.range_pop("x");
  }
  ASSERT_EQ(build("range q category never_used\nrange r category from_a_rule\n"), 0) << error.text;
  EXPECT_EQ(rows("SELECT category FROM allocation ORDER BY address"),
            (std::vector<std::string>{"from_a_tag", "from_a_rule"}));
}

TEST_F(RulesInForce, ModulesKeepWhatLivesOnAfterItsPhase) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "head.proj", "Linear", 0, 1);
    auto &main = log.thread(1);
    main.at(10).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(20).range_push("Model", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000000, 512);
    main.at(21).range_push("head.proj", SL_KIND_forward, 2).allocator(SL_ALLOC, 0x1000200, 512);
    main.allocator(SL_ALLOC, 0x1000400, 512).at(22).allocator(SL_FREE_REQUESTED, 0x1000400, 512);
    main.at(23).range_pop().range_pop().at(30).range_end(1);
  }
  ASSERT_EQ(build("module head.* category logits\n"), 0) << error.text;
  EXPECT_EQ(rows("SELECT category, decided_by FROM allocation ORDER BY address"),
            (std::vector<std::string>{"other|forward_survivor", "logits|user_module", "temp|forward_temp"}));
  EXPECT_EQ(rows("SELECT category, bytes FROM category_at_peak WHERE category = 'logits' AND step IS NOT NULL"),
            (std::vector<std::string>{"logits|512"}));
}

TEST_F(RulesInForce, WhatTheProgramNotesIsAColumnAndMayBeACategory) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    const auto noted = [&](const std::string &note, uint64_t address) {
      main.append(sl_event_allocator_note{log.sequence(0), 0, log.string(note), 0}).allocator(SL_ALLOC, address, 512);
    };
    main.at(10).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    noted("kv pool", 0x1000000);
    noted("weights", 0x1000200);
    main.allocator(SL_ALLOC, 0x1000400, 512);
    noted("kv pool", 0x1000600);
    main.tag(0x1000600, "from_a_tag");
    main.append(sl_event_allocator_note{77, 0, log.string("kv pool"), 0})
        .allocator(SL_ALLOC, 0x1000800, 512); // another's
  }
  ASSERT_EQ(build("note \"kv *\" category kv_cache\n"), 0) << error.text;
  EXPECT_EQ(rows("SELECT note, category, decided_by FROM allocation ORDER BY address"),
            (std::vector<std::string>{"kv pool|kv_cache|user_note", "weights|unattributed|none", "|unattributed|none",
                                      "kv pool|from_a_tag|tag", "|unattributed|none"}));
}

TEST_F(RulesInForce, AKindMayNameTheModuleThatItServes) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "layers.0", "Block", 0, 1);
    log.module(3, 1, "layers.1", "Block", 0, 1);
    auto &main = log.thread(1);
    main.at(10).range_start(1, "step 0", SL_KIND_step, 0);
    main.at(20).range_push("work", 0, 0, "x").range_pop("x");
    main.at(30).range_push("layers.1", SL_KIND_forward, 3).at(31).range_push("work", 0, 0, "x").range_pop("x");
    main.at(32).range_push("lost", 0, 0, "x").range_pop("x").range_pop().at(40).range_end(1);
  }
  ASSERT_EQ(build("range work kind recompute module=layers.*\nrange lost kind recompute module=nowhere\n"
                  "range los? kind zero_grad"),
            0)
      << error.text;
  EXPECT_EQ(rows("SELECT p.kind, m.fqn FROM phase p JOIN module m ON m.id = p.module_id WHERE name IN ('work', 'lost') "
                 "ORDER BY start_ns"),
            (std::vector<std::string>{"recompute|layers.0", "recompute|layers.1", "zero_grad|layers.1"}))
      << "the first of the model, the enclosing one, and the next rule where no module fits";
}

TEST_F(RulesInForce, ARuleComesBeforeTheBuiltInTable) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.thread(1).at(10).range_push("Optimizer.zero_grad#AdamW", SL_KIND_record_function).range_pop();
    log.thread(1).at(20).range_push("Optimizer.step#AdamW", SL_KIND_record_function).range_pop();
  }
  ASSERT_EQ(build("range Optimizer.zero_grad#* kind user\n"), 0) << error.text;
  EXPECT_EQ(rows("SELECT kind FROM phase ORDER BY start_ns"), (std::vector<std::string>{"user", "optimizer_step"}));
}

TEST_F(RulesInForce, TheCompanionsStepsAndBackwardsAreNotCountedTwice) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    auto &main = log.thread(1);
    main.at(10).range_start(1, "step 0", SL_KIND_step, 0).at(11).range_push("iteration", 0, 0, "trainer");
    main.at(20).range_push("bwd", 0, 0, "trainer").at(21).range_push("backward", SL_KIND_backward, 0);
    main.at(22).range_pop().at(23).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    log.thread(2).at(24).allocator(SL_ALLOC, 0x1000000, 512);
    main.at(25).range_pop("trainer").range_pop("trainer").at(30).range_end(1);
    main.at(31).range_push("iteration", 0, 0, "trainer").range_pop("trainer");
  }
  ASSERT_EQ(build(kKinds), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, start_ns, end_ns FROM step ORDER BY step"), (std::vector<std::string>{"0|10|30"}));
  EXPECT_EQ(rows("SELECT kind, name FROM phase WHERE kind IN ('step', 'backward')"),
            (std::vector<std::string>{"step|step 0", "backward|bwd"}));
  EXPECT_EQ(rows("SELECT p.name FROM allocation a JOIN phase p ON p.id = a.phase_id"),
            (std::vector<std::string>{"bwd"}))
      << "autograd's thread belongs to the backward that is still open";
}

TEST_F(RulesInForce, StartEndRangesMakeStepsAndModuleBackwardsToo) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "head", "Linear", 0, 1);
    auto &main = log.thread(1);
    main.at(10).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB).range_start(1, "iteration", 0, 0, "x");
    main.at(20).range_start(2, "bwd", 0, 0, "x").range_start(3, "bwd head", 0, 0, "x");
    log.thread(2).at(21).allocator(SL_ALLOC, 0x1000000, 512);
    main.at(22).range_end(3);
    log.thread(2).at(23).allocator(SL_ALLOC, 0x1000200, 512);
    main.at(24).range_end(2).at(30).range_end(1);
  }
  ASSERT_EQ(build("range iteration kind step\nrange bwd kind backward\nrange \"bwd head\" kind backward module=head\n"),
            0)
      << error.text;
  EXPECT_EQ(rows("SELECT step FROM step"), (std::vector<std::string>{"0"}));
  EXPECT_EQ(rows("SELECT p.name, coalesce(m.fqn, '') FROM allocation a JOIN phase p ON p.id = a.phase_id "
                 "LEFT JOIN module m ON m.id = a.module_id ORDER BY a.address"),
            (std::vector<std::string>{"bwd head|head", "bwd|"}));
}

TEST_F(RulesInForce, WhatTheTrackerWouldShowIsNotUpToRules) {
  fs::create_directories(directory);
  sl_ledger_options options{};
  std::vector<std::string> views[2];
  for (int with_rules = 0; with_rules < 2; with_rules++) {
    sl_user_rules *rules = nullptr;
    if (with_rules) {
      ASSERT_EQ(
          sl_user_rules_parse("range FSDP::all_gather_copy_out* category gathered\nmodule blocks.* category kept\n",
                              "my.rules", &rules, &error),
          0);
    }
    // A copy: rules are kept beside the logs.
    fs::path run = directory / std::to_string(with_rules);
    fs::copy(fs::path(SL_TEST_DATA) / "fsdp2-2rank", run, fs::copy_options::recursive);
    options.rules = rules;
    ASSERT_EQ(sl_ledger_build(run.c_str(), output.c_str(), &options, &note, &error), 0) << error.text;
    sl_user_rules_free(rules);
    views[with_rules] =
        rows("SELECT rank, step, fqn, call, state, category, bytes FROM fsdp_snapshot WHERE rank = 0 AND "
             "step = 1 AND fqn LIKE '%blocks.1' ORDER BY fqn, call, state, category");
    EXPECT_EQ(rows("SELECT count(*) > 0 FROM allocation WHERE category IN ('gathered', 'kept')"),
              (std::vector<std::string>{with_rules ? "1" : "0"}));
  }
  EXPECT_FALSE(views[0].empty());
  EXPECT_EQ(views[0], views[1]);
}

TEST_F(RulesInForce, ACopyIsKeptForTheNextIngestAndAnEmptyFileTakesItAway) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(kKinds), 0) << error.text;
  EXPECT_EQ(content(directory / "rules"), kKinds);
  EXPECT_EQ(rows("SELECT value FROM meta WHERE key = 'rules'"), (std::vector<std::string>{kKinds}));
  ASSERT_EQ(build(nullptr), 0) << error.text;
  EXPECT_EQ(rows("SELECT count(*) FROM step"), (std::vector<std::string>{"2"})) << "by the copy";
  ASSERT_EQ(build("# none\n"), 0) << error.text;
  EXPECT_FALSE(fs::exists(directory / "rules"));
  EXPECT_EQ(rows("SELECT count(*) FROM step"), (std::vector<std::string>{"0"}));
  for (const auto &entry : fs::directory_iterator(directory))
    EXPECT_NE(entry.path().extension(), ".part") << entry.path();
}

TEST_F(RulesInForce, AChangedCopyMakesTheLedgerStaleAndAWrongOneIsNamed) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(kKinds), 0) << error.text;
  fs::last_write_time(directory / "host-1-1" / "00000000.slog",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(sl_ledger_is_stale(directory.c_str(), output.c_str()), 0);
  std::ofstream(directory / "rules") << "range x kind stepp\n";
  fs::last_write_time(directory / "rules", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(sl_ledger_is_stale(directory.c_str(), output.c_str()), 1);
  EXPECT_EQ(build(nullptr), -EINVAL);
  EXPECT_NE(std::string(error.text).find("/rules:1: there is no kind 'stepp'"), std::string::npos) << error.text;
  EXPECT_EQ(rows("SELECT count(*) FROM step"), (std::vector<std::string>{"2"})) << "the ledger stays as it was";
}

TEST_F(RulesInForce, AFailedIngestLeavesTheKeptRulesAlone) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    job(log);
  }
  ASSERT_EQ(build(kKinds), 0) << error.text;
  output = "/proc/ledger.sqlite";
  EXPECT_LT(build("range iteration kind eval\n"), 0);
  EXPECT_EQ(content(directory / "rules"), kKinds);
}

} // namespace

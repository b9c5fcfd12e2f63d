// Where in the code memory was asked for: from the log's frames and sites to the ledger's lines.
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "nvtx_ranges/kinds.h"
#include "storage/code/sites.h"
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20;

TEST(CodeOf, AFileIsTheUsersUnlessItWasInstalled) {
  EXPECT_EQ(sl_code_of("train.py", nullptr), SL_CODE_OF_USER);
  EXPECT_EQ(sl_code_of("/home/me/job/model.py", nullptr), SL_CODE_OF_USER);
  EXPECT_EQ(sl_code_of("<stdin>", nullptr), SL_CODE_OF_USER);
  EXPECT_EQ(sl_code_of("/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", nullptr),
            SL_CODE_OF_PYTORCH);
  EXPECT_EQ(sl_code_of("/tmp/torchinductor_me/ab/cab.py", nullptr), SL_CODE_OF_PYTORCH);
  EXPECT_EQ(sl_code_of("venv/lib/python3.12/site-packages/transformers/trainer.py", nullptr), SL_CODE_OF_LIBRARY);
  EXPECT_EQ(sl_code_of("/usr/lib/python3/dist-packages/torchvision/ops.py", nullptr), SL_CODE_OF_LIBRARY);
  EXPECT_EQ(sl_code_of("/usr/lib/python3.12/runpy.py", nullptr), SL_CODE_OF_PYTHON);
  EXPECT_EQ(sl_code_of("<frozen runpy>", nullptr), SL_CODE_OF_PYTHON);
}

TEST(CodeOf, PyTorchIsWhereItWasRecordedToBe) {
  EXPECT_EQ(sl_code_of("/home/me/pytorch/torch/nn/modules/module.py", "/home/me/pytorch/torch"), SL_CODE_OF_PYTORCH);
  EXPECT_EQ(sl_code_of("torch/nn/modules/module.py", "torch"), SL_CODE_OF_PYTORCH);
  EXPECT_EQ(sl_code_of("/home/me/pytorch/torchvision/ops.py", "/home/me/pytorch/torch"), SL_CODE_OF_USER);
  EXPECT_EQ(sl_code_of("/home/me/pytorch/torch/csrc/lib.cpp", "/home/me/pytorch/torch"), SL_CODE_OF_NATIVE);
  EXPECT_EQ(sl_code_of("/home/me/train.py", ""), SL_CODE_OF_USER);
}

class Sites : public ::testing::Test {
protected:
  void SetUp() override {
    directory =
        fs::path(::testing::TempDir()) / "sites" / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  void frame(LogBuilder &log, uint32_t id, uint32_t caller, const std::string &file, const std::string &function,
             uint32_t line) {
    log.define(sl_event_frame{id, caller, log.string(file), log.string(function), line, 0});
  }
  void site(LogBuilder &log, uint32_t id, uint32_t frame, const std::string &operator_name,
            uint32_t stack_of = SL_STACK_OF_CALLER) {
    log.define(sl_event_site{id, frame, operator_name.empty() ? 0 : log.string(operator_name), stack_of});
  }
  // The stack main > Net.forward > torch's Linear.forward, and a site in it; and one in main.
  void usual(LogBuilder &log) {
    frame(log, 1, 0, "train.py", "main", 40);
    frame(log, 2, 1, "model.py", "Net.forward", 12);
    frame(log, 3, 2, "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", "Linear.forward", 134);
    site(log, 1, 3, "aten::addmm");
    site(log, 2, 1, "");
    site(log, 3, 3, "aten::mm", SL_STACK_OF_FORWARD);
    site(log, 4, 0, "aten::sum");
  }
  // An allocation; site 0: none is recorded.
  void allocate(LogBuilder &log, uint64_t ns, uint64_t address, uint64_t bytes, uint32_t site) {
    auto &thread = log.thread(1).at(ns);
    if (site)
      thread.append(sl_event_allocator_site{log.sequence(0), 0, site, 0});
    thread.allocator(SL_ALLOC, address, bytes);
  }
  void free(LogBuilder &log, uint64_t ns, uint64_t address, uint64_t bytes) {
    log.thread(1).at(ns).allocator(SL_FREE_REQUESTED, address, bytes).allocator(SL_FREE_COMPLETED, address, bytes);
  }
  // Segments for one allocation each.
  void segment(LogBuilder &log, uint64_t ns) {
    for (uint64_t i = 0; i < 8; i++)
      log.thread(1).at(ns).allocator(SL_SEGMENT_ALLOC, i * 8 * kMiB, 8 * kMiB);
  }
  // A forward of module 1 with two allocations of these sizes, freed as the step ends.
  void step(LogBuilder &log, uint64_t number, uint64_t ns, const std::vector<uint64_t> &sizes, uint32_t with_site,
            bool keeps = false) {
    auto &thread = log.thread(1);
    thread.at(ns).range_start(number + 1, "step", SL_KIND_step, number);
    thread.at(ns + 10).range_push("forward", SL_KIND_forward, 1);
    uint64_t address = 8 * kMiB;
    for (size_t i = 0; i < sizes.size(); i++, address += 8 * kMiB)
      allocate(log, ns + 20 + i, address, sizes[i], with_site ? with_site : 0);
    thread.at(ns + 50).range_pop();
    address = 8 * kMiB;
    for (size_t i = 0; i < sizes.size() && !keeps; i++, address += 8 * kMiB)
      free(log, ns + 60 + i, address, sizes[i]);
    thread.at(ns + 90).range_end(number + 1);
  }

  std::vector<std::string> rows(const std::string &sql) {
    return ledger_rows(ledger(), sql);
  }
  std::string ledger() const {
    return (directory / "ledger.sqlite").string();
  }
  int build() {
    struct sl_error note = {}, error = {};
    struct sl_ledger_options options = {};
    options.keep_all = keep_all;
    const int r = sl_ledger_build(directory.c_str(), ledger().c_str(), &options, &note, &error);
    EXPECT_EQ(r, 0) << error.text;
    return r;
  }

  fs::path directory;
  bool keep_all = false;
};

TEST_F(Sites, APyTorchOfOnesOwnBuildIsNotTheUsersCode) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.info("torch_directory", "/home/me/pytorch/torch");
    frame(log, 1, 0, "train.py", "main", 40);
    frame(log, 2, 1, "/home/me/pytorch/torch/nn/modules/linear.py", "Linear.forward", 134);
    site(log, 1, 2, "aten::addmm");
    segment(log, 90);
    allocate(log, 100, 0, kMiB, 1);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT file, line, function, operator_name FROM site_line"),
            (std::vector<std::string>{"train.py|40|main|aten::addmm"}));
}

TEST_F(Sites, AStackIsItsInnermostFrameAndIsNamedByTheUsersInnermostLine) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    usual(log);
    frame(log, 4, 0, "/usr/lib/python3.12/runpy.py", "run", 1);
    frame(log, 5, 4, "/venv/lib/python3.12/site-packages/trainer/loop.py", "fit", 2);
    frame(log, 6, 5, "/venv/lib/python3.12/site-packages/torch/autograd/function.py", "apply", 3);
    site(log, 5, 6, "");
    segment(log, 90);
    allocate(log, 100, 0, kMiB, 2);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(
      rows(
          "SELECT f.function, f.depth, f.code_of, c.function FROM frame f LEFT JOIN frame c ON c.id = f.caller_id ORDER BY f.id"),
      (std::vector<std::string>{"main|0|user|", "Net.forward|1|user|main", "Linear.forward|2|pytorch|Net.forward",
                                "run|0|python|", "fit|1|library|run", "apply|2|pytorch|fit"}));
  EXPECT_EQ(rows("SELECT file, line, function, operator_name, stack_of FROM site_line ORDER BY site_id"),
            (std::vector<std::string>{"model.py|12|Net.forward|aten::addmm|caller", "train.py|40|main||caller",
                                      "model.py|12|Net.forward|aten::mm|forward", "|||aten::sum|",
                                      "/venv/lib/python3.12/site-packages/trainer/loop.py|2|fit||caller"}));
  EXPECT_EQ(rows("SELECT path FROM stack_path JOIN site USING (frame_id) WHERE operator_name = 'aten::addmm'"),
            (std::vector<std::string>{"main train.py:40 > Net.forward model.py:12"}));
}

TEST_F(Sites, EachAllocationHasItsOwnAndThePeakIsAddedUpByThem) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    usual(log);
    segment(log, 90);
    allocate(log, 100, 0, 2 * kMiB, 2);
    allocate(log, 110, 8 * kMiB, 4 * kMiB, 1);
    allocate(log, 120, 16 * kMiB, 4 * kMiB, 3);
    allocate(log, 130, 24 * kMiB, kMiB, 0);
    allocate(log, 140, 32 * kMiB, kMiB, 4);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT site_id, site_step FROM allocation ORDER BY id"),
            (std::vector<std::string>{"2|", "1|", "3|", "|", "4|"}));
  EXPECT_EQ(
      rows("SELECT file, line, sum(bytes) / 1048576, sum(allocations), sum(backward_bytes) / 1048576 FROM line_at_peak "
           "GROUP BY file, line ORDER BY file"),
      (std::vector<std::string>{"||2|2|0", "model.py|12|8|2|4", "train.py|40|2|1|0"}));
  EXPECT_EQ(rows("SELECT sum(bytes) = (SELECT peak_allocated_bytes FROM life) FROM line_at_peak"),
            (std::vector<std::string>{"1"}));
  EXPECT_EQ(rows("SELECT operator_name, bytes / 1048576 FROM operator_at_peak ORDER BY operator_name"),
            (std::vector<std::string>{"|3", "aten::addmm|4", "aten::mm|4", "aten::sum|1"}));
}

TEST_F(Sites, AStepWithoutThemHasThoseOfTheSamePlacesInAnEarlierStep) {
  keep_all = true;
  {
    LogBuilder log(directory / "host-1-1", 50);
    usual(log);
    log.module(1, 0, "", "Net");
    segment(log, 90);
    step(log, 0, 1000, {4 * kMiB, 2 * kMiB}, 1);
    step(log, 1, 2000, {4 * kMiB, 2 * kMiB}, 0);
    step(log, 2, 3000, {2 * kMiB, 4 * kMiB}, 0); /* the same sizes at other places */
    step(log, 3, 4000, {4 * kMiB, 2 * kMiB, kMiB}, 0);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT step, group_concat(coalesce(site_id, '-') || ' ' || coalesce(site_step, '-'), ', ') FROM "
                 "(SELECT * FROM allocation ORDER BY id) WHERE step IS NOT NULL GROUP BY step"),
            (std::vector<std::string>{"0|1 -, 1 -", "1|1 0, 1 0", "2|- -, - -", "3|1 0, 1 0, - -"}));
}

TEST_F(Sites, WhereSizesVaryTwoStepsHaveToAgree) {
  keep_all = true;
  {
    LogBuilder log(directory / "host-1-1", 50);
    usual(log);
    log.module(1, 0, "", "Net");
    segment(log, 90);
    step(log, 0, 1000, {4 * kMiB, 2 * kMiB}, 1);
    step(log, 1, 2000, {3 * kMiB, kMiB}, 0);
    step(log, 2, 3000, {3 * kMiB, kMiB}, 1);
    step(log, 3, 4000, {5 * kMiB, 5 * kMiB}, 0);
    step(log, 4, 5000, {6 * kMiB, 6 * kMiB}, 3); /* another site at these places */
    step(log, 5, 6000, {7 * kMiB, 7 * kMiB}, 0);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(
      rows("SELECT step, group_concat(coalesce(site_id, '-') || ' ' || coalesce(site_step, '-'), ', ') FROM "
           "(SELECT * FROM allocation ORDER BY id) WHERE step IS NOT NULL GROUP BY step"),
      (std::vector<std::string>{"0|1 -, 1 -", "1|- -, - -", "2|1 -, 1 -", "3|1 2, 1 2", "4|3 -, 3 -", "5|- -, - -"}));
}

TEST_F(Sites, StepsRepeatEachOtherWithThemAndWithout) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    usual(log);
    log.module(1, 0, "", "Net");
    segment(log, 90);
    for (uint64_t number = 0; number < 15; number++) /* the first ten and the last keep their rows in any case */
      step(log, number, 1000 * (number + 1), {4 * kMiB, 2 * kMiB}, number == 1 || number == 12 ? 1 : 0);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT step, same_as FROM step WHERE same_as IS NOT NULL"),
            (std::vector<std::string>{"10|9", "11|9", "12|9", "13|9"}))
      << "whether stacks were taken is nothing that a step does";
}

TEST_F(Sites, ARefusedRequestHasItsLineAndThoseOfWhatIsAlive) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    usual(log);
    segment(log, 90);
    allocate(log, 100, 0, 2 * kMiB, 2);
    log.thread(1).at(200).allocator(SL_OUT_OF_MEMORY, 0, 512 * kMiB).append(sl_event_refused_site{0, 1});
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT site_id FROM oom"), (std::vector<std::string>{"1"}));
  EXPECT_EQ(rows("SELECT site_id, bytes / 1048576, allocations FROM oom_site"), (std::vector<std::string>{"2|2|1"}));
}

TEST_F(Sites, WhatADamagedLogSaysOfThemHarmsNothing) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    frame(log, 3, 7, "a.py", "later caller", 1); /* a caller that comes later, or never */
    frame(log, 3, 0, "b.py", "again", 2);        /* a number that is known */
    frame(log, UINT32_MAX, 0, "c.py", "far", 3); /* no process has so many */
    frame(log, 0, 0, "d.py", "none", 4);
    site(log, 9, 12345, "aten::add"); /* a frame that never was */
    site(log, UINT32_MAX, 3, "");
    segment(log, 90);
    allocate(log, 100, 0, kMiB, 77);                                    /* a site that never was */
    log.thread(1).at(110).append(sl_event_allocator_site{99, 0, 9, 0}); /* of another event */
    log.thread(1).append(sl_event_allocator_site{1, 4096, 9, 0});       /* of no device */
    log.thread(1).append(sl_event_refused_site{0, 9});                  /* of no refusal */
    allocate(log, 120, 8 * kMiB, kMiB, 0);
  }
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(rows("SELECT function, caller_id, depth FROM frame"), (std::vector<std::string>{"later caller||0"}));
  EXPECT_EQ(rows("SELECT id, frame_id, operator_name, stack_of FROM site"),
            (std::vector<std::string>{"9||aten::add|"}));
  EXPECT_EQ(rows("SELECT count(*) FROM allocation WHERE site_id IS NOT NULL"), (std::vector<std::string>{"0"}));
}

} // namespace

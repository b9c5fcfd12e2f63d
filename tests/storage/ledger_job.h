// What the tests of a ledger's rows share: a directory with its ledger, and one step of one FSDP unit.
#pragma once

#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

extern "C" {
#include "storage/ledger.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace small_job {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20;

class Ledger : public ::testing::Test {
protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("ledger-" + std::to_string(getpid()));
    fs::remove_all(directory);
    fs::create_directories(directory);
    output = directory / "ledger.sqlite";
  }
  void TearDown() override {
    fs::remove_all(directory);
  }

  int build() {
    return sl_ledger_build(directory.c_str(), output.c_str(), nullptr, &note, &error);
  }

  // Rows as text: columns by '|'.
  std::vector<std::string> rows(const std::string &sql) {
    return ledger_rows(output, sql);
  }

  // One step of one FSDP unit: a parameter from before, an activation, a gradient that is reduced, optimizer state.
  void job(LogBuilder &log) {
    log.module(1, 0, "", "Model", SL_MODULE_FSDP | SL_MODULE_ROOT, 0, 1024, 0);
    auto &main = log.thread(1);
    auto &autograd = log.thread(2);
    main.at(100).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB);
    main.at(101).allocator(SL_ALLOC, 0x1000000, 1000); // the parameter
    main.at(110).range_start(1, "step 0", SL_KIND_step, 0).tag(0x1000000, "sharded_param", 1, "weight");
    main.at(120).range_push("Model", SL_KIND_forward, 1).range_push("FSDP::pre_forward", SL_KIND_record_function);
    main.at(121).range_pop().allocator(SL_ALLOC, 0x1000400, 2048); // the activation
    main.at(122).range_push("FSDP::post_forward", SL_KIND_record_function).range_pop().range_pop();
    main.at(130).range_push("backward", SL_KIND_backward, 0);
    autograd.at(131).range_push("FSDP::pre_backward", SL_KIND_record_function).range_pop();
    autograd.at(132).allocator(SL_ALLOC, 0x1000c00, 512); // the gradient
    autograd.at(133).range_push("FSDP::post_backward_accumulate", SL_KIND_record_function).range_pop();
    autograd.at(134).range_push("FSDP::post_backward_reduce", SL_KIND_record_function);
    autograd.at(135).allocator(SL_ALLOC, 0x1000e00, 512); // the sharded gradient
    autograd.at(136).allocator(SL_FREE_REQUESTED, 0x1000c00, 512).allocator(SL_FREE_COMPLETED, 0x1000c00, 512);
    autograd.at(137).range_pop();
    autograd.at(138).allocator(SL_FREE_REQUESTED, 0x1000400, 2048).allocator(SL_FREE_COMPLETED, 0x1000400, 2048);
    main.at(140).range_pop();
    main.at(150).range_push("AdamW", SL_KIND_optimizer_step, 1);
    main.at(151).allocator(SL_ALLOC, 0x1000400, 1024).range_pop(); // optimizer state
    main.at(160).append(sl_event_allocator_stats{1000 + 512 + 1024, 1024 + 512 + 1024, 1024 + 512 + 1024, 2 * kMiB,
                                                 log.sequence(0), 0});
    main.at(170).range_end(1).process_end();
  }

  fs::path directory, output;
  sl_error note{}, error{};
};

} // namespace small_job

/* The post-mortem: why a request did not fit, what was alive, what would help. */
#include "fakes/command.h"
#include "fakes/ledger_builder.h"
#include "fakes/ledger_rows.h"

#include <gtest/gtest.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

struct Request {
  int64_t requested = 2 * gib, free = gib, allocated = 60 * gib, active = 60 * gib, reserved = 60 * gib, largest = 0;
  std::string source = "allocator";
};

class Oom : public testing::Test {
protected:
  /* Two blocks, a step that ended and one that is refused something in the forward of the second block. */
  void job(LedgerBuilder &ledger, const Request &request = {}, int rank = 0) {
    ledger.rank(rank, 2);
    root = ledger.module(rank, "", "Model");
    first = ledger.module(rank, "blocks.0", "Block", root);
    second = ledger.module(rank, "blocks.1", "Block", root);
    ledger.step(rank, 0, 50 * gib)
        .peak(rank, 0, 0, "step", {{"activation", 50 * gib}})
        .peak(rank, 0, second, "forward", {{"activation", 28 * gib}, {"sharded_param", 10 * gib}, {"temp", gib}});
    ledger.step(rank, 1, 60 * gib).peak(rank, 1, 0, "step", {{"activation", 60 * gib}});
    int64_t phase = ledger.phase(rank, 1, "forward", second);
    at = std::to_string(ledger.now() + 100);
    refuse(ledger, request, phase, rank);
  }
  void refuse(LedgerBuilder &ledger, const Request &q, int64_t phase, int rank = 0) {
    ledger.sql(
        "INSERT INTO oom(rank, at_ns, requested_bytes, free_bytes, allocated_bytes, reserved_bytes, "
        "largest_free_bytes, device, source, active_bytes, inactive_split_bytes, phase_id, module_id, step) VALUES(" +
        std::to_string(rank) + "," + at + "," + std::to_string(q.requested) + "," + std::to_string(q.free) + "," +
        std::to_string(q.allocated) + "," + std::to_string(q.reserved) + "," + std::to_string(q.largest) + ",0,'" +
        q.source + "'," + std::to_string(q.active) + ",0," + std::to_string(phase) + "," + std::to_string(second) +
        ",1)");
  }
  void owner(LedgerBuilder &ledger, const std::string &category, int64_t module, int64_t bytes,
             const std::string &detail = "") {
    ledger.sql("INSERT INTO oom_owner VALUES(0," + at + ",'" + category + "'," +
               (detail.empty() ? "NULL" : "'" + detail + "'") + "," + (module ? std::to_string(module) : "NULL") +
               ",'forward'," + std::to_string(bytes) + ",4)");
  }
  void device_owner(LedgerBuilder &ledger, const std::string &who, int64_t bytes) {
    ledger.sql("INSERT INTO device_owner VALUES(0,0," + at + ",'" + who + "'," + std::to_string(bytes) + ")");
  }
  std::string reason_of(const Request &request, int64_t others = 0) {
    std::string run = directory / (std::to_string(counter++) + ".sqlite");
    {
      LedgerBuilder ledger(run);
      job(ledger, request);
      if (others)
        device_owner(ledger, "other_processes", others);
    }
    std::string text = shardledger({"oom", run}).out;
    size_t why = text.find("Why: ");
    return why == std::string::npos ? text : text.substr(why, text.find('\n', why) - why);
  }

  TemporaryDirectory directory;
  std::string path = directory / "run.sqlite", at;
  int64_t root = 0, first = 0, second = 0;
  int counter = 0;
};

TEST_F(Oom, TheFirstScreenSaysWhatWasAskedWhereAndWhyItDidNotFit) {
  {
    LedgerBuilder ledger(path);
    job(ledger);
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text,
                       "Out of memory: rank 0, in step 1: 2.00 GiB asked for by PyTorch's allocator\n"
                       "     In forward of Model.blocks.1\n"
                       "     60.00 GiB allocated, 60.00 GiB reserved by PyTorch; its cache has 0 B free, the largest "
                       "block 0 B\n"
                       "Why: too much is live; 1.00 GiB of the device were free\n"))
      << text;
}

TEST_F(Oom, EachReasonIsToldFromTheOthers) {
  Request fragmented;
  fragmented.reserved = 64 * gib;
  fragmented.largest = gib;
  EXPECT_EQ(reason_of(fragmented),
            "Why: fragmentation: with 4.00 GiB free in the cache and 1.00 GiB on the device it would "
            "fit, but not in one block");
  Request limited;
  limited.free = 10 * gib;
  EXPECT_EQ(reason_of(limited), "Why: a limit of this process, as of torch.cuda.set_per_process_memory_fraction: the "
                                "device had 10.00 GiB free");
  EXPECT_EQ(reason_of({}, 3 * gib), "Why: others hold the device: 3.00 GiB are other processes' or unexplained");
  EXPECT_EQ(reason_of({}, gib), "Why: too much is live; 1.00 GiB of the device were free");
  Request library = fragmented;
  library.source = "libnccl.so.2";
  EXPECT_EQ(reason_of(library),
            "Why: PyTorch's cache keeps 4.00 GiB that it does not use, which libnccl.so.2 could not have");
}

TEST_F(Oom, WhatIsNotKnownOfPyTorchsAllocatorIsNoZero) {
  for (bool allocated : {true, false}) {
    std::string run = directory / (std::to_string(counter++) + ".sqlite");
    {
      LedgerBuilder ledger(run);
      job(ledger);
      ledger.sql("UPDATE oom SET reserved_bytes = NULL, largest_free_bytes = NULL");
      if (!allocated)
        ledger.sql("UPDATE oom SET allocated_bytes = NULL");
    }
    std::string text = shardledger({"oom", run}).out;
    const std::string amount = allocated ? "60.00 GiB" : "an unknown amount";
    EXPECT_TRUE(contains(text, "     " + amount + " allocated by PyTorch; what it reserved is not known\n")) << text;
    EXPECT_FALSE(contains(text, "its cache")) << text;
  }
}

TEST_F(Oom, WhatChangedIsToldAgainstTheSamePhaseOfTheStepBefore) {
  {
    LedgerBuilder ledger(path);
    job(ledger);
    owner(ledger, "activation", first, 20 * gib);
    owner(ledger, "activation", second, 15 * gib);
    owner(ledger, "sharded_param", root, 10 * gib);
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "activation     35.00 GiB  77.8%            8      28.00 GiB  +7.00 GiB\n"
                             "sharded_param  10.00 GiB  22.2%            4      10.00 GiB          -\n"
                             "temp                 0 B   0.0%            0       1.00 GiB  -1.00 GiB\n"
                             "A step before is the highest point of: forward of Model.blocks.1 in step 0\n"))
      << text;
  EXPECT_TRUE(contains(text, "Model.blocks.0  20.00 GiB  activation     20.00 GiB\n")) << text;
}

TEST_F(Oom, OutsideOfStepsThePeriodIsNamedAndComparedWithTheStepBefore) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).step(0, 4, 50 * gib).peak(0, 4, 0, "step", {{"activation", 40 * gib}, {"temp", 10 * gib}});
    second = ledger.module(0, "head", "Linear", ledger.module(0, "", "Model"));
    const int64_t eval = ledger.phase(0, 4, "eval", second);
    ledger.between(0, 4, "evaluation", {{"activation", 60 * gib}}, eval);
    at = std::to_string(ledger.now() + 100);
    refuse(ledger, {}, eval);
    owner(ledger, "activation", second, 60 * gib);
    ledger.sql("UPDATE oom SET step = NULL; UPDATE period SET kind = 'end' WHERE kind = 'between'");
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "Out of memory: rank 0, after step 4 (evaluation): 2.00 GiB asked for by PyTorch's "
                             "allocator\n     In eval of Model.head\n"))
      << text;
  EXPECT_TRUE(contains(text, "activation  60.00 GiB  100.0%            4      40.00 GiB  +20.00 GiB\n")) << text;
  EXPECT_TRUE(contains(text, "A step before is the highest point of: step in step 4\n")) << text;
}

TEST_F(Oom, BeforeTheFirstStepThereIsNothingToCompareWith) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).between(0, -1, "", {{"param", 60 * gib}});
    at = std::to_string(ledger.now());
    second = ledger.module(0, "", "Model");
    refuse(ledger, {}, 0);
    owner(ledger, "param", second, 60 * gib);
    ledger.step(0, 0, gib).sql("UPDATE oom SET step = NULL; UPDATE period SET start_ns = start_ns + 100000000, end_ns ="
                               " end_ns + 100000000 WHERE kind = 'step'");
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "Out of memory: rank 0, before step 0: 2.00 GiB asked for")) << text;
  EXPECT_TRUE(contains(text, "There is no earlier step to compare it with\n")) << text;
}

TEST_F(Oom, AdviceThatCantBePredictedIsAboutWhatWasAlive) {
  {
    LedgerBuilder ledger(path);
    Request request;
    request.reserved = 63 * gib;
    job(ledger, request);
    owner(ledger, "activation", first, 20 * gib);
    owner(ledger, "activation", second, 16 * gib);
    owner(ledger, "temp", 0, 4 * gib, "optimizer");
    owner(ledger, "optstate", 0, gib);
    device_owner(ledger, "other_processes", gib);
    for (int i = 2; i < 6; i++)
      owner(ledger, "unsharded_param", ledger.module(0, "blocks." + std::to_string(i), "Block", root), gib);
  }
  std::string json = shardledger({"oom", path, "--json"}).out;
  for (
      const char *part :
      {R"("advice": "batch", "what": "half the batch, or half the sequence", "fits": "perhaps", "fits_words": "perhaps", "about_bytes": 19327352832, )"
       R"("before_bytes": null, "after_bytes": null, "after_most_bytes": null, "standing": "not predicted")",
       R"("advice": "recompute", "what": "activation checkpointing of 2 modules of class Block", "fits": "perhaps", "fits_words": "perhaps", "about_bytes": 17179869184)",
       R"("what": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "fits": "perhaps", "fits_words": "perhaps", "about_bytes": 3221225472)",
       R"("advice": "adamw_fused", "what": "the optimizer with fused=True", "fits": "perhaps", "fits_words": "perhaps", "about_bytes": 3221225472)",
       R"("counted": "4 temporaries of it, less one")",
       R"x("what": "fully_shard(…, reshard_after_forward=True), or FULL_SHARD of FSDP1", "fits": "perhaps", "fits_words": "perhaps", "about_bytes": 2147483648)x",
       R"("counted": "gathered parameters of 4 modules, less two of them")",
       R"("what": "the other processes on this GPU", "fits": "perhaps", "fits_words": "perhaps", "about_bytes": 1073741824)"})
    EXPECT_TRUE(contains(json, part)) << part << "\n" << json;
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(
      text,
      "     Nothing is predicted: its allocator's events were not recorded\n     At least 1.00 GiB are missing\n"))
      << text;
}

TEST_F(Oom, UnderALimitOfTheProcessOtherProcessesAreNoOption) {
  {
    LedgerBuilder ledger(path);
    Request limited;
    limited.free = 10 * gib;
    job(ledger, limited);
    owner(ledger, "activation", first, 20 * gib);
    device_owner(ledger, "other_processes", 4 * gib);
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "Why: a limit of this process")) << text;
  EXPECT_TRUE(contains(text, "half the batch")) << text;
  EXPECT_FALSE(contains(text, "the other processes on this GPU")) << text;
}

TEST_F(Oom, TheDeviceIsFullWhereItHasNoSegmentFreeThoughItHasTheBytes) {
  {
    LedgerBuilder ledger(path);
    Request request;
    request.free = 14 << 20;
    job(ledger, request);
    owner(ledger, "activation", first, 20 * gib);
    device_owner(ledger, "other_processes", gib);
    ledger.sql("UPDATE oom SET requested_bytes = 4 << 20, largest_free_bytes = 0");
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(
      contains(text, "4.0 MiB asked for by PyTorch's allocator (its message says 20.0 MiB, the segment for it)"))
      << text;
  EXPECT_FALSE(contains(text, "a limit of this process")) << text;
  EXPECT_TRUE(contains(text, "the other processes on this GPU")) << text;
  EXPECT_TRUE(contains(text, "     At least 4.0 MiB are missing\n")) << text;
}

TEST_F(Oom, ItSaysWhatPytorchsMessageSaysInstead) {
  const auto headline = [this](int64_t bytes, const char *config) {
    std::string run = directory / (std::to_string(counter++) + ".sqlite");
    {
      LedgerBuilder ledger(run);
      job(ledger);
      ledger.sql("UPDATE oom SET requested_bytes = " + std::to_string(bytes) +
                 "; UPDATE rank SET allocator_config = '" + config + "'");
    }
    std::string text = shardledger({"oom", run}).out;
    size_t begin = text.find("in step 1: ") + strlen("in step 1: ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(headline(2 * gib, ""), "2.00 GiB asked for by PyTorch's allocator");
  EXPECT_EQ(headline(25192448, ""),
            "24.0 MiB asked for by PyTorch's allocator (its message says 26.0 MiB, the segment for it)");
  EXPECT_EQ(headline(4096, ""),
            "4.0 KiB asked for by PyTorch's allocator (its message says 2.0 MiB, the segment for it)");
  EXPECT_EQ(headline(5 << 20, "large_segment_size_mb:64"),
            "5.0 MiB asked for by PyTorch's allocator (its message says 64.0 MiB, the segment for it)");
}

TEST_F(Oom, ALeakIsNamedByItsWholeAmountAndComesFirstWhenItIsEnough) {
  for (int64_t grows : {int64_t(0), mib, gib}) {
    std::string run = directory / ("leak" + std::to_string(grows) + ".sqlite");
    {
      LedgerBuilder ledger(run);
      Request request;
      request.free = gib; /* of two that are asked for */
      job(ledger, request);
      owner(ledger, "activation", second, 40 * gib);
      ledger.sql("DELETE FROM period; DELETE FROM peak");
      for (int step = 0; step < 9; step++) {
        ledger.step(0, step, 2 * (40 * gib + step * grows));
        if (grows)
          ledger.allocation(0, step, grows, "other", second).sql("UPDATE allocation SET last_step = 8, free_ns = NULL");
      }
      ledger.sql("UPDATE period SET end_ns = start_ns; UPDATE oom SET at_ns = (SELECT max(end_ns) + 1 FROM step);"
                 "UPDATE oom_owner SET at_ns = (SELECT at_ns FROM oom)");
    }
    std::string text = shardledger({"oom", run}).out, leak = "keeping nothing of a step: see 'shardledger survivors'";
    EXPECT_EQ(contains(text, leak), grows == gib) << text; /* less than a hundredth is no help */
    if (grows == gib) {
      /* Growth is measured from step 2 on; steps 0 to 2 left as much each. */
      EXPECT_TRUE(contains(text, leak + "  perhaps   9.00 GiB  not predicted  none known\n")) << text;
      EXPECT_TRUE(contains(shardledger({"oom", run, "--json"}).out, R"("counted": "what 9 steps left behind")"));
      EXPECT_LT(text.find(leak), text.find("half the batch, or half the sequence  "))
          << "20 GiB of the batch are more, but will not be enough for long: " << text;
    }
  }
}

TEST_F(Oom, OfTheStepsBeforeGrowthIsMeasuredALeakHasNoMoreThanItAddsInAsMany) {
  {
    LedgerBuilder ledger(path);
    Request request;
    request.free = gib;
    job(ledger, request);
    ledger.sql("DELETE FROM period; DELETE FROM peak");
    for (int step = 0; step < 9; step++) {
      ledger.step(0, step, 2 * (40 * gib + step * gib));
      /* What the first step makes is mostly there to stay, whoever else grows. */
      ledger.allocation(0, step, step ? gib : 30 * gib, "other", second)
          .sql("UPDATE allocation SET last_step = 8, free_ns = NULL");
    }
    ledger.sql("UPDATE period SET end_ns = start_ns; UPDATE oom SET at_ns = (SELECT max(end_ns) + 1 FROM step)");
  }
  std::string json = shardledger({"oom", path, "--json"}).out;
  EXPECT_TRUE(contains(json, R"("advice": "leak", "what": "keeping nothing of a step: see 'shardledger survivors'", )"
                             R"("fits": "perhaps", "fits_words": "perhaps", "about_bytes": 9663676416, )"))
      << json;
}

/* A step's forward returned logits of 2 GiB, and the loss outside of modules was refused 4 GiB. */
class OomInTheLoss : public Oom {
protected:
  std::string options(const std::string &change, const std::string &kind = "step") {
    std::string run = directory / (std::to_string(counter++) + ".sqlite");
    {
      LedgerBuilder ledger(run);
      Request request;
      request.requested = 4 * gib;
      ledger.rank(0).step(0, 0, 60 * gib);
      root = second = ledger.module(0, "", "Model");
      ledger.phase(0, 0, "forward", root);
      ledger.allocation(0, 0, 2 * gib, "activation", root);
      ledger.allocation(0, 0, 4 * gib, "activation");
      at = std::to_string(ledger.now() + 5000000000);
      refuse(ledger, request, ledger.phase(0, 0, kind, 0));
      ledger.sql("UPDATE rank SET device = 0; UPDATE oom SET step = 0, module_id = NULL;"
                 "UPDATE phase SET start_ns = 1000, end_ns = 2000 WHERE kind = 'forward';"
                 "UPDATE phase SET start_ns = 2500 WHERE kind <> 'forward';"
                 "UPDATE allocation SET requested_bytes = bytes, alloc_ns = 1500, free_ns = 3500;"
                 "UPDATE allocation SET alloc_ns = 2200, decided_by = 'step_activation' WHERE module_id IS NULL;"
                 "UPDATE oom SET at_ns = 3000;" +
                 change);
    }
    return shardledger({"oom", run, "--json"}).out;
  }
};

TEST_F(OomInTheLoss, ChunksOfItAreAnOptionOfTheTensorsThatAreItsOwnAndTheRequest) {
  for (const char *kind : {"step", "backward"})
    for (const char *part : {R"("advice": "loss", "what": "the loss in 8 chunks, each made again in backward", )"
                             R"("fits": "perhaps", "fits_words": "perhaps", "about_bytes": 7516192768, )",
                             R"("counted": "7/8 of 2 tensors of the loss, the refused one with them")"})
      EXPECT_TRUE(contains(options("", kind), part)) << options("", kind);
}

TEST_F(OomInTheLoss, NothingThatMayBeSomethingElseCounts) {
  const char *loss = R"("advice": "loss")";
  EXPECT_TRUE(contains(
      options("UPDATE allocation SET bytes = bytes / 64, requested_bytes = bytes / 64 WHERE module_id IS NULL"),
      R"("about_bytes": 3758096384)"))
      << "smaller than the model's output: of the two only the request is left";
  EXPECT_FALSE(contains(options("UPDATE oom SET module_id = (SELECT id FROM module)"), loss)) << "a module asked";
  EXPECT_FALSE(contains(options("UPDATE oom SET requested_bytes = 1 << 30"), loss))
      << "smaller than the model's output";
  EXPECT_FALSE(contains(options("UPDATE oom SET requested_bytes = 9 << 30"), loss)) << "no copy of it is so large";
  EXPECT_FALSE(contains(options("UPDATE oom SET source = 'libnccl.so.2'"), loss)) << "a library asked";
  EXPECT_FALSE(contains(options("UPDATE oom SET step = NULL"), loss)) << "outside of steps there is no loss";
  EXPECT_FALSE(contains(options("UPDATE phase SET end_ns = 9000 WHERE kind = 'forward'"), loss)) << "in the forward";
  EXPECT_FALSE(contains(options("INSERT INTO phase SELECT 77, rank, tid, 'backward', name, module_id, step, "
                                "call_index, 2700, 2800, parent_id FROM phase WHERE kind = 'forward'"),
                        loss))
      << "the model's own backward has begun";
}

TEST_F(Oom, GradientsThatAreKeptWholeAreToBeReducedEachTime) {
  const struct {
    int units;
    const char *phase;
    int64_t saved; /* of 12 GiB, this one of two ranks keeps its half; in a backward two units' 4 are there anyhow */
  } cases[] = {{3, "backward", 0}, {6, "backward", 2 * gib}, {6, "forward", 6 * gib}};
  for (const auto &[units, phase, saved] : cases) {
    std::string run = directory / (std::to_string(units) + phase + ".sqlite");
    {
      LedgerBuilder ledger(run);
      job(ledger);
      for (int i = 0; i < units; i++)
        owner(ledger, "unsharded_grad", ledger.module(0, "units." + std::to_string(i), "Block", root), 2 * gib);
      owner(ledger, "gradient", 0, 7 * gib, "in_flight"); /* may be something else */
      ledger.sql(std::string("UPDATE phase SET kind = '") + phase + "'");
    }
    std::string json = shardledger({"oom", run, "--json"}).out;
    const std::string figure =
        R"("fits": "perhaps", "fits_words": "perhaps", "about_bytes": )" + std::to_string(saved) + ",";
    EXPECT_EQ(contains(json, R"x("advice": "gradient_sync", "what": "gradients reduced in every backward: no )x"
                             R"x(set_requires_gradient_sync(False), no no_sync()", )x" +
                                 figure),
              saved > 0)
        << json;
    EXPECT_EQ(contains(json, R"("advice": "gradient_sync")"), saved > 0) << json;
    EXPECT_FALSE(contains(json, R"("advice": "optimizer_in_backward")")) << json;
  }
}

TEST_F(Oom, WhatModelsReturnAndTheProgramKeepsComesFirstWhenItIsEnough) {
  {
    LedgerBuilder ledger(path);
    job(ledger);
    owner(ledger, "activation", second, 30 * gib);
    ledger.allocation(0, 1, 2 * gib, "program", first).allocation(0, 1, 3 * gib, "program", second);
    ledger.allocation(0, 1, 9 * gib, "program"); /* the program's own, and no output */
    ledger.sql("UPDATE rank SET device = 0; UPDATE allocation SET free_ns = NULL, alloc_ns = 1000;"
               "UPDATE allocation SET detail = 'output' WHERE module_id IS NOT NULL");
    ledger.allocation(0, 1, 7 * gib, "program", second); /* made in the call that is refused something */
    ledger.sql("UPDATE allocation SET detail = 'output', free_ns = NULL, alloc_ns = (SELECT at_ns - 1 FROM oom) "
               "WHERE bytes = 7 << 30");
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(
      text, "\nnot keeping what models return outside of steps, or keeping it on the host  perhaps   5.00 GiB  "
            "not predicted  not known\n"))
      << text;
  EXPECT_TRUE(contains(shardledger({"oom", path, "--json"}).out,
                       R"("counted": "2 tensors that are kept, most of Model.blocks.1")"));
}

TEST_F(Oom, InAnOptimizersFirstStepWhatHasNoTagMayBeItsState) {
  for (bool tagged : {false, true}) {
    std::string run = directory / (tagged ? "tagged.sqlite" : "untagged.sqlite");
    {
      LedgerBuilder ledger(run);
      ledger.rank(0).step(0, 0, 60 * gib);
      second = ledger.module(0, "", "Model");
      int64_t phase = ledger.phase(0, 0, "optimizer_step", 0);
      at = std::to_string(ledger.now() + 100);
      refuse(ledger, {}, phase);
      owner(ledger, "temp", 0, 4 * gib, "optimizer");
      if (tagged)
        owner(ledger, "optstate", second, gib);
      ledger.sql("UPDATE oom SET step = 0");
    }
    std::string json = shardledger({"oom", run, "--json"}).out;
    EXPECT_EQ(contains(json, R"("advice": "adamw_fused")"), tagged) << json;
  }
}

TEST_F(Oom, TheLargestAllocationsAreThoseAliveAtThatInstant) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0);
    ledger.allocation(0, 0, 7 * mib, "activation"); // freed before
    ledger.allocation(0, 0, 5 * mib, "optstate");
    ledger.sql("UPDATE allocation SET free_ns = NULL, name = 'weight.exp_avg' WHERE bytes = 5 * 1048576");
    second = ledger.module(0, "", "Model");
    at = std::to_string(ledger.now() + 1000);
    refuse(ledger, {}, ledger.phase(0, 0, "optimizer_step", 0));
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "  5.0 MiB  optstate  weight.exp_avg")) << text;
  EXPECT_FALSE(contains(text, "7.0 MiB")) << text;
}

TEST_F(Oom, CsvHasEveryTableWithEveryRowAndTheRankThatTheyAreOf) {
  const std::string run = directory / "run.sqlite";
  ASSERT_EQ(shardledger({"ingest", SL_TEST_DATA "/oom-backward-2rank", "-o", run}).status, 0);
  const std::string all = shardledger({"oom", run, "--rank", "1", "--csv"}).out;
  for (const std::string name : {"deaths", "advice", "categories", "modules", "lines", "largest", "device"})
    EXPECT_TRUE(contains(all, "\n\n# " + name + "\n")) << name;
  const std::string largest = shardledger({"oom", run, "--rank", "1", "--csv", "--table", "largest"}).out;
  const std::string alive =
      ledger_cells(run, "SELECT count(*) FROM allocation a JOIN oom o ON o.rank = a.rank WHERE a.rank = 1"
                        " AND a.alloc_ns <= o.at_ns AND (a.free_ns IS NULL OR a.free_ns > o.at_ns)")[0][0];
  EXPECT_EQ(std::to_string(std::count(largest.begin(), largest.end(), '\n') - 1), alive);
  std::istringstream lines(largest);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line.substr(line.rfind(',')), ",rank");
  while (std::getline(lines, line))
    EXPECT_EQ(line.substr(line.rfind(',')), ",1") << line;
}

TEST_F(Oom, TheFirstDeadlyRequestOfAllRanksIsShownAndSurvivedOnesOnlyWithoutOne) {
  {
    LedgerBuilder ledger(path);
    Request survived;
    survived.requested = 3 * gib;
    job(ledger, survived);
    ledger.step(0, 2, gib); // rank 0 went on
    job(ledger, {}, 1);
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "Out of memory: rank 1, in step 1: 2.00 GiB asked for by PyTorch's allocator\n")) << text;
  EXPECT_TRUE(contains(text, "2 requests were refused on all ranks together; this is the first that ended a rank\n"))
      << text;
  text = shardledger({"oom", path, "--rank", "0"}).out;
  EXPECT_TRUE(contains(text, "3.00 GiB asked for by PyTorch's allocator, and the job went on\n")) << text;
  std::string csv = shardledger({"oom", path, "--csv"}).out;
  EXPECT_TRUE(contains(csv, ",live,0,Model.blocks.1,") && contains(csv, ",live,1,Model.blocks.1,")) << csv;
  std::string info = shardledger({"info", path}).out;
  EXPECT_TRUE(contains(info, "out of memory") && contains(info, "clean")) << info;
}

TEST_F(Oom, AFreeBlockThatCouldNotServeTheRequestIsNoReasonToSayThatNothingWasMissing) {
  {
    LedgerBuilder ledger(path);
    Request request;
    request.largest = 2 * request.requested;
    job(ledger, request);
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "blocks that are large enough can't serve this: another stream's or pool's")) << text;
  EXPECT_FALSE(contains(text, "0 B are missing")) << text;
}

TEST_F(Oom, OfRequestsThatWereAllSurvivedTheLastIsShownAndSaidToBe) {
  {
    LedgerBuilder ledger(path);
    job(ledger);
    at = std::to_string(std::stoll(at) + 1);
    refuse(ledger, {}, 0);
    ledger.step(0, 2, gib); // it went on
  }
  std::string text = shardledger({"oom", path}).out;
  EXPECT_TRUE(contains(text, "asked for by PyTorch's allocator, and the job went on\n")) << text;
  EXPECT_TRUE(contains(text, "2 requests were refused; this is the last, and the job went on after each\n")) << text;
}

TEST_F(Oom, AKilledProcessShowsWhereItsLogEnds) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).step(0, 3, gib);
    int64_t head = ledger.module(0, "head", "Linear", ledger.module(0, "", "Model"));
    ledger.phase(0, 3, "backward", head);
    ledger.allocation(0, 3, 6 * mib, "activation", head);
    ledger.sql("UPDATE phase SET end_ns = NULL; UPDATE allocation SET free_ns = NULL;"
               "UPDATE rank SET clean_exit = 0, end_ns = (SELECT end_ns FROM step)");
  }
  CommandResult result = shardledger({"oom", path});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "Rank 0's log just stops, in step 3: it was killed, crashed, or is still running\n"
                                   "     Within backward of Model.head\n"))
      << result.out;
  EXPECT_TRUE(contains(result.out, "activation  6.0 MiB  100.0%            1\n")) << result.out;
  EXPECT_FALSE(contains(result.out, "Advice")) << result.out;
  EXPECT_TRUE(contains(shardledger({"info", path}).out, "cut off"));
}

TEST_F(Oom, ARunThatEndedInOrderSaysSo) {
  {
    LedgerBuilder ledger(path);
    ledger.rank(0).step(0, 0, gib);
  }
  CommandResult result = shardledger({"oom", path});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(contains(result.out, "No request was refused, and every rank ended in order.\n")) << result.out;
  EXPECT_TRUE(
      contains(shardledger({"oom", path, "--rank", "0"}).out, "Rank 0 ended in order, and no request was refused\n"));
  EXPECT_TRUE(contains(shardledger({"oom", path, "--rank", "7"}).error, "there is no rank 7; rank 0 was recorded"));
}

} // namespace

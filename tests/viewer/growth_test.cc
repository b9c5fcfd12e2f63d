/* Leaks of every kind, recorded and ingested: what a job keeps is told by its owner, to the byte, and nothing else is.
 */
#include "fakes/command.h"
#include "fakes/ledger_rows.h"
#include "fakes/log_builder.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

namespace {

constexpr uint64_t kib = 1024, ms = 1'000'000;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/* A job whose allocations are counted as they are made: the truth that the ledger is held against. */
class Job {
public:
  Job(const std::string &directory, const std::string &rank = "0") : log(directory) {
    log.info("rank", rank).info("world_size", "1");
    log.module(1, 0, "", "Model", SL_MODULE_ROOT).module(2, 1, "head", "Linear", 0, 1);
    const uint64_t weight = allocate(64 * kib);
    main.tag(weight, "param", 2, "head.weight");
  }
  LogBuilder::Thread &next() {
    return main.at(now += ms);
  }
  uint64_t allocate(uint64_t bytes) {
    const uint64_t address = 0x100000000 + 0x10000000 * blocks++;
    sizes[address] = bytes;
    held += (int64_t)bytes;
    next().allocator(SL_SEGMENT_ALLOC, address, 8ull << 20);
    next().allocator(SL_ALLOC, address, bytes);
    return address;
  }
  void release(uint64_t address) {
    held -= (int64_t)sizes[address];
    next().allocator(SL_FREE_REQUESTED, address, sizes[address]);
    next().allocator(SL_FREE_COMPLETED, address, sizes[address]);
  }
  /* forward and optimizer: what is done in each. */
  void step(
      const std::function<void()> &forward, const std::function<void()> &optimizer = [] {}) {
    const uint64_t number = at_end.size();
    next().range_start(1 + number, "step " + std::to_string(number), SL_KIND_step, number);
    next().range_push("Model", SL_KIND_forward, 1);
    next().range_push("Linear", SL_KIND_forward, 2);
    const uint64_t scratch = allocate(8 * kib);
    forward();
    next().range_pop();
    next().range_pop();
    next().range_push("backward", SL_KIND_backward, 0);
    next().range_pop();
    release(scratch);
    next().range_push("Adam", SL_KIND_optimizer_step, 0);
    optimizer();
    next().range_pop();
    next().range_end(1 + number);
    at_end.push_back(held);
  }
  void range(const std::string &name, uint16_t kind, uint64_t value, const std::function<void()> &within) {
    next().range_push(name, kind, value);
    within();
    next().range_pop();
  }
  int64_t grown(size_t from, size_t to) const {
    return at_end[to] - at_end[from];
  }

  LogBuilder log;
  LogBuilder::Thread &main = log.thread(1);
  uint64_t now = 1'000'000'000'000'000'000, blocks = 0;
  int64_t held = 0;
  std::map<uint64_t, uint64_t> sizes;
  std::vector<int64_t> at_end; /* held, by step */
};

class Growth : public testing::Test {
protected:
  /* The growth that the job's own bookkeeping has is the ledger's, as a whole and as the sum of its owners. */
  void expect_growth(int64_t bytes, int from, int to) {
    std::string told = std::to_string(from) + "|" + std::to_string(to) + "|" + std::to_string(bytes) + "|" +
                       std::to_string(bytes) + "|" + std::to_string(bytes);
    EXPECT_EQ(ask("SELECT from_step, to_step, bytes, grown_bytes, allocated_bytes FROM rank_growth"), told)
        << survivors();
  }
  void record(const std::function<void(Job &)> &work) {
    {
      Job job(directory / "run/host-1-1");
      work(job);
    }
    CommandResult result = shardledger({"ingest", directory / "run", "-o", ledger});
    ASSERT_EQ(result.status, 0) << result.error;
  }
  std::string ask(const std::string &sql) {
    std::vector<std::string> rows = ledger_rows(ledger, sql);
    std::string all;
    for (const std::string &row : rows)
      all += (all.empty() ? "" : "\n") + row;
    return all;
  }
  std::string survivors() {
    return shardledger({"survivors", ledger}).out;
  }
  CommandResult check(const std::string &budget) {
    return shardledger({"check", ledger, "--max-growth", budget});
  }
  TemporaryDirectory directory;
  std::string ledger = directory / "run.sqlite";
  int64_t grown = 0;
};

TEST_F(Growth, OfSizesThatVaryTheOwnerIsToldAndTheSlopeIsThatOfTheStepEnds) {
  record([&](Job &job) {
    for (uint64_t i = 0; i < 16; i++)
      job.step([&] { job.allocate((5 + i * 7 % 11) * 64 * kib); });
    grown = job.grown(2, 15);
  });
  expect_growth(grown, 2, 15);
  EXPECT_TRUE(contains(survivors(), " a step on average, from step 2 to 15 (")) << survivors();
  EXPECT_TRUE(contains(survivors(), "; most of it: other/survivor of Model.head from forward (")) << survivors();
  EXPECT_EQ(ask("SELECT allocations, births, late_births, gone_births FROM owner_growth WHERE grows"), "13|12|6|0");
  EXPECT_EQ(check("10KiB/step").status, 1);
  EXPECT_TRUE(contains(check("10KiB/step").out, "is other/survivor of Model.head from forward"))
      << check("1KiB/step").out;
  EXPECT_EQ(check("10MiB/step").status, 0);
}

TEST_F(Growth, OfAJobWithoutStepsItIsToldByCall) {
  int64_t early = 0, late = 0;
  record([&](Job &job) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < 20; i++) {
      job.range("request", SL_KIND_user, 0, [&] {
        const uint64_t scratch = job.allocate((1 + i % 3) * 256 * kib);
        job.range("Model", SL_KIND_eval, 1, [&] { job.allocate((2 + i % 4) * 64 * kib); });
        job.release(scratch);
        if (last)
          job.release(last); /* the answer before: it is no leak that one is always held */
        last = job.allocate(32 * kib);
      });
      early = i == 2 ? job.held : early;
      late = job.held;
    }
  });
  EXPECT_EQ(ask("SELECT from_call, to_call, sum(bytes) FROM owner_growth_by_call"),
            "2|19|" + std::to_string(late - early));
  EXPECT_EQ(ask("SELECT phase, sum(bytes) FROM owner_growth_by_call WHERE grows"),
            "eval|" + std::to_string(late - early));
  EXPECT_TRUE(contains(survivors(), " a call on average, from call 2 to 19 (")) << survivors();
  EXPECT_EQ(check("100KiB/step").status, 1);
  EXPECT_TRUE(contains(check("100KiB/step").out, " a call on average, from call 2 to 19: "))
      << check("100KiB/step").out;
  EXPECT_EQ(check("10MiB/step").status, 0);
}

TEST_F(Growth, AServerThatKeepsNothingIsClean) {
  record([&](Job &job) {
    uint64_t last = 0;
    for (uint64_t i = 0; i < 20; i++)
      job.range("request", SL_KIND_user, 0, [&] {
        if (last)
          job.release(last);
        last = job.allocate((1 + i % 5) * 64 * kib);
      });
  });
  EXPECT_TRUE(contains(survivors(), "Nothing grows (20 calls: the outermost ranges of a job without steps)"))
      << survivors();
  EXPECT_EQ(check("1KiB/step").status, 0);
}

TEST_F(Growth, WhatAnEvaluationKeepsIsTheProgramsOutput) {
  record([&](Job &job) {
    for (int i = 0; i < 20; i++) {
      job.step([] {});
      if (i % 5 == 4)
        for (int batch = 0; batch < 8; batch++)
          job.range("Model", SL_KIND_forward, 1, [&] { job.allocate((uint64_t)(1 + batch) * 64 * kib); });
    }
    grown = job.grown(2, 19);
  });
  expect_growth(grown, 2, 19);
  EXPECT_EQ(grown, int64_t(3 * 36 * 64 * kib)) << "what is kept after the last step is in no step's end";
  EXPECT_TRUE(contains(survivors(), "most of it: program/output of Model from ")) << survivors();
  EXPECT_EQ(ask("SELECT births, allocations FROM owner_growth WHERE grows"), "3|24");
}

TEST_F(Growth, WhatOnlyEveryTenthStepKeepsIsFound) {
  record([&](Job &job) {
    for (int i = 0; i < 60; i++)
      job.step([&] {
        if (i % 10 == 5)
          job.allocate(1024 * kib);
      });
    grown = job.grown(2, 59);
  });
  EXPECT_EQ(grown, int64_t(6 * 1024 * kib));
  expect_growth(grown, 2, 59);
  EXPECT_TRUE(
      contains(survivors(), "Grows 107.8 KiB a step on average, from step 2 to 59 (6.0 MiB in all); most of it: "))
      << survivors();
  EXPECT_TRUE(contains(check("64KiB/step").out, "43.8 KiB over the budget of 64.0 KiB a step"))
      << check("64KiB/step").out;
}

TEST_F(Growth, OneLossAStepIsSmall) {
  record([&](Job &job) {
    for (int i = 0; i < 15; i++)
      job.step([&] { job.allocate(512); });
    grown = job.grown(2, 14);
  });
  expect_growth(grown, 2, 14);
  EXPECT_TRUE(
      contains(survivors(), "Grows 512 B a step on average: small (6.0 KiB in all from step 2 to 14); most of it: "))
      << survivors();
  EXPECT_EQ(check("512/step").status, 0);
  EXPECT_EQ(check("511/step").status, 1);
}

TEST_F(Growth, AJobThatKeepsNothingIsCleanWhateverItsBatchesAre) {
  record([&](Job &job) {
    uint64_t batch = 0, copy = 0, gradient = 0;
    std::vector<uint64_t> ahead; /* a queue of three batches */
    for (uint64_t i = 0; i < 17; i++) {
      const uint64_t size = (1 + i * i % 13) * 64 * kib;
      if (batch)
        job.release(batch);
      batch = job.allocate(size);
      ahead.push_back(job.allocate(size));
      if (ahead.size() > 3) {
        job.release(ahead.front());
        ahead.erase(ahead.begin());
      }
      if (i % 4 == 3) { /* a copy of the weights that takes the place of the one before */
        const uint64_t fresh = job.allocate(96 * kib);
        if (copy)
          job.release(copy);
        copy = fresh;
      }
      if (gradient)
        job.release(gradient);
      job.step([&] { gradient = job.allocate(size / 2); },
               [&] {
                 if (i == 0 || i == 6) /* state, of the second group when it is first trained */
                   job.allocate(128 * kib);
               });
    }
  });
  EXPECT_TRUE(contains(survivors(), "\nNothing grows (17 steps)\n")) << survivors();
  EXPECT_EQ(ask("SELECT count(*) FROM owner_growth WHERE grows"), "0");
  EXPECT_EQ(check("0/step").status, 0) << check("0/step").out;
}

TEST_F(Growth, ALargeLastBatchIsNotTakenForTheLeak) {
  record([&](Job &job) {
    uint64_t batch = 0;
    for (uint64_t i = 0; i < 12; i++) {
      if (batch)
        job.release(batch);
      batch = job.allocate(i == 11 ? 4096 * kib : 64 * kib);
      job.step([&] { job.allocate(16 * kib); });
    }
    grown = job.grown(2, 11);
  });
  EXPECT_EQ(ask("SELECT bytes, allocated_bytes FROM rank_growth"),
            std::to_string(9 * 16 * kib) + "|" + std::to_string(grown));
  EXPECT_TRUE(
      contains(survivors(), "Grows 16.0 KiB a step on average, from step 2 to 11 (144.0 KiB in all); most of it: "))
      << survivors();
  EXPECT_TRUE(
      contains(survivors(), "That is what stays; including what comes and goes, allocated bytes changed by +4.1 MiB\n"))
      << survivors();
}

TEST_F(Growth, TheOwnersAddUpToWhatIsAllocatedMoreWhateverComesAndGoes) {
  record([&](Job &job) {
    uint64_t batch = 0;
    for (uint64_t i = 0; i < 30; i++) {
      if (batch)
        job.release(batch);
      batch = job.allocate((1 + i % 5) * 64 * kib);
      job.step([&] {
        if (i % 3 == 0)
          job.allocate((1 + i) * kib);
      });
    }
    grown = job.grown(2, 29);
  });
  EXPECT_EQ(ask("SELECT sum(bytes) FROM owner_growth"), std::to_string(grown));
}

TEST_F(Growth, ThePhaseOfAnOwnerIsTheInnermostThatIsMoreThanAName) {
  record([&](Job &job) {
    for (int i = 0; i < 8; i++)
      job.step([&] {
        job.main.range_push("round " + std::to_string(i), 0, 0, "mine");
        job.allocate(16 * kib);
        job.main.range_pop("mine");
      });
  });
  EXPECT_EQ(ask("SELECT phase, births FROM owner_growth WHERE grows"), "forward|4");
}

TEST_F(Growth, AStepThatWasCutOffIsNotHeldAgainstTheOnesBefore) {
  record([&](Job &job) {
    for (int i = 0; i < 10; i++)
      job.step([&] { job.allocate(64 * kib); });
    job.next().range_start(99, "step 10", SL_KIND_step, 10);
    job.next().range_push("Linear", SL_KIND_forward, 2);
    for (int i = 0; i < 8; i++)
      job.allocate(1024 * kib);
    grown = job.grown(2, 9);
  });
  expect_growth(grown, 2, 9);
}

TEST_F(Growth, OfThreeWholeStepsAndOneThatWasCutOffNobodyCanTell) {
  record([&](Job &job) {
    for (int i = 0; i < 3; i++)
      job.step([&] { job.allocate(64 * kib); });
    job.next().range_start(99, "step 3", SL_KIND_step, 3);
    job.allocate(1024 * kib);
  });
  EXPECT_TRUE(
      contains(survivors(), "3 steps: too few to tell what grows from what comes once; at least four are needed"))
      << survivors();
  EXPECT_EQ(check("1KiB/step").status, 2);
}

} // namespace

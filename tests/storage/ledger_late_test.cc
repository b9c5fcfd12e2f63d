// The ledger of a process that was attached to when it had memory already.
#include "ledger_job.h"

using namespace small_job;

namespace {

// Attached when a parameter, its optimizer state and a tensor in use by a stream were there. The snapshot was taken
// after the first three events; its records were written while others followed.
class AttachedLate : public Ledger {
protected:
  void existing(LogBuilder &log, uint64_t address, uint64_t bytes, uint64_t requested, uint8_t state, uint8_t starts,
                uint32_t device = 0) {
    log.define(sl_event_allocator_existing{address, bytes, requested, device, log.place(device), state, starts});
  }

  void late_job(LogBuilder &log, uint32_t blocks = 5) {
    auto &main = log.thread(1);
    // Part of the snapshot, and so to be left alone: two frees and an allocation.
    main.at(100).allocator(SL_FREE_REQUESTED, 0x1000c00, 512).allocator(SL_FREE_COMPLETED, 0x1000c00, 512);
    main.at(101).allocator(SL_ALLOC, 0x1000400, 2000);
    log.define(sl_event_allocator_restore{0, 2, blocks, log.sequence(0)});
    // While the records are written, another thread frees what the snapshot still shows, and takes its place.
    log.thread(2).at(102).allocator(SL_FREE_COMPLETED, 0x1000c00, 512).allocator(SL_ALLOC, 0x1000c00, 512);
    existing(log, 0x1000000, 1024, 1000, SL_BLOCK_ALLOCATED, 1);
    existing(log, 0x1000400, 2048, 2000, SL_BLOCK_ALLOCATED, 0);
    existing(log, 0x1000c00, 512, 400, SL_BLOCK_PENDING, 0);
    existing(log, 0x1000e00, 2 * kMiB - 0xe00, 0, SL_BLOCK_FREE, 0);
    existing(log, 0x8000000, 20 * kMiB, 0, SL_BLOCK_FREE, 1);
    main.at(110).range_start(1, "step 0", SL_KIND_step, 0).tag(0x1000000, "sharded_param", 1, "weight");
    main.at(120).append(sl_event_allocator_stats{3512, 3584, 3584, 22 * kMiB, log.sequence(0), 0}).range_end(1);
    main.at(130).range_start(2, "step 1", SL_KIND_step, 1);
    main.at(131).allocator(SL_FREE_REQUESTED, 0x1000400, 2000).allocator(SL_FREE_COMPLETED, 0x1000400, 2000);
    main.at(132).allocator(SL_SEGMENT_FREE, 0x8000000, 20 * kMiB);
    main.at(140).append(sl_event_allocator_stats{1512, 1536, 1536, 2 * kMiB, log.sequence(0), 0}).range_end(2);
    main.at(150).process_end();
  }
};

TEST_F(AttachedLate, TheTotalsAreExactFromTheFirstStepOn) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    late_job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT step, peak_requested_bytes, peak_allocated_bytes, peak_active_bytes, peak_reserved_bytes, "
                 "end_allocated_bytes, end_reserved_bytes, checked FROM step"),
            (std::vector<std::string>{"0|3512|3584|3584|23068672|3584|23068672|1",
                                      "1|3512|3584|3584|23068672|1536|2097152|1"}));
  EXPECT_EQ(rows("SELECT source FROM gap"), (std::vector<std::string>{}));
  EXPECT_EQ(rows("SELECT events_lost, restored_allocations, device FROM rank"), (std::vector<std::string>{"0|2|0"}));
}

TEST_F(AttachedLate, WhatWasThereIsTaggedOrSaidToBeFromBefore) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    late_job(log);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT printf('%x', address), category, coalesce(detail, ''), decided_by, coalesce(name, ''), bytes, "
                 "requested_bytes, coalesce(step, 'none'), coalesce(phase_id, 'none'), alloc_ns, coalesce(free_ns, 0) "
                 "FROM allocation ORDER BY address, alloc_ns"),
            (std::vector<std::string>{
                "1000000|sharded_param||tag|weight|1024|1000|none|none|50|0",
                "1000400|unattributed|before_attach|restored||2048|2000|none|none|50|131",
                "1000c00|unattributed||none||512|512|none|none|102|0",
            }));
  EXPECT_EQ(rows("SELECT category, bytes FROM peak_category WHERE step = 0 AND module_id IS NULL AND phase = 'step' "
                 "ORDER BY category"),
            (std::vector<std::string>{"sharded_param|1024", "unattributed|2560"}));
  EXPECT_EQ(rows("SELECT printf('%x', address), bytes, owner, api, coalesce(free_ns, 0) FROM segment ORDER BY address"),
            (std::vector<std::string>{"1000000|2097152|pytorch|before_attach|0",
                                      "8000000|20971520|pytorch|before_attach|132"}));
}

TEST_F(AttachedLate, TheDriversCallsSayWhenTheSegmentsCame) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    late_job(log);
    const uint32_t library = log.string("libc10_cuda.so"), api = log.string("cuMemAlloc_v2");
    auto &driver = log.thread(3);
    driver.at(20).append(sl_event_driver_allocation{0x1000000, 2 * kMiB, 0, library, api, 0, SL_MEMORY_DEVICE});
    driver.at(21).append(sl_event_driver_allocation{0x8000000, 2 * kMiB, 0, library, api, 0, SL_MEMORY_DEVICE});
    driver.at(22).append(sl_event_driver_allocation{0x8200000, 18 * kMiB, 0, library, api, 0, SL_MEMORY_DEVICE});
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(
      rows("SELECT printf('%x', address), bytes, owner, api, alloc_ns FROM segment ORDER BY address"),
      (std::vector<std::string>{"1000000|2097152|pytorch|cuMemAlloc_v2|20", "8000000|2097152|pytorch|cuMemAlloc_v2|21",
                                "8200000|18874368|pytorch|cuMemAlloc_v2|22"}));
}

TEST_F(AttachedLate, BlocksThatAreMissingFromTheLogAreAGap) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    late_job(log, 7);
    existing(log, 0x1000000, 512, 512, SL_BLOCK_ALLOCATED, 1);    // there is one already
    existing(log, 0x9000000, 512, 512, SL_BLOCK_ALLOCATED, 1, 5); // of a device that was not restored
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT source, lost FROM gap"), (std::vector<std::string>{"replay|3"}));
}

TEST_F(AttachedLate, TheRanksDeviceIsTheOneThatHoldsMost) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.define(sl_event_allocator_restore{0, 1, 1, 0});
    existing(log, 0x1000000, 2 * kMiB, 512, SL_BLOCK_ALLOCATED, 1, 0);
    log.define(sl_event_allocator_restore{1, 1, 1, 0});
    existing(log, 0x2000000, 20 * kMiB, 512, SL_BLOCK_ALLOCATED, 1, 1);
    log.thread(1).at(100).range_start(1, "step 0", SL_KIND_step, 0).at(200).range_end(1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT device FROM rank"), (std::vector<std::string>{"1"}));
  EXPECT_EQ(rows("SELECT peak_allocated_bytes FROM step"), (std::vector<std::string>{"20971520"}));
}

TEST_F(AttachedLate, ASnapshotThatSomebodyTakesDoesNotMakeDeviceZeroTheRanks) {
  {
    LogBuilder log(directory / "host-1-1", 50);
    log.thread(1).at(100).allocator(SL_ALLOCATOR_SNAPSHOT, 0, 0, 0).allocator(SL_ALLOCATOR_SNAPSHOT, 0, 0, 0);
    log.thread(1).at(101).allocator(SL_SEGMENT_ALLOC, 0x1000000, 2 * kMiB, 1);
  }
  ASSERT_EQ(build(), 0) << error.text;
  EXPECT_EQ(rows("SELECT device FROM rank"), (std::vector<std::string>{"1"}));
}

} // namespace

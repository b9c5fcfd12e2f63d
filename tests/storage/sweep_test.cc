// Sums over time: totals at snapshots, highest points of phases.
extern "C" {
#include "storage/attribution/sweep.h"
}

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace {

struct Peak {
  const sl_phase *phase;
  uint64_t allocated, own, with_children, at;
};

class Sweep : public ::testing::Test {
protected:
  void SetUp() override {
    sl_sweep_listener listener{this,
                               [](void *self, const sl_item *item, const sl_sample *sample) {
                                 static_cast<Sweep *>(self)->snapshots.push_back(*sample);
                                 static_cast<Sweep *>(self)->calls.push_back(item->call_index);
                                 return 0;
                               },
                               [](void *self, const sl_phase *phase, const sl_sample *sample, const sl_own_bytes *own) {
                                 static_cast<Sweep *>(self)->peaks.push_back(
                                     {phase, sample->allocated_bytes, own->alone, own->with_children, sample->at_ns});
                                 return 0;
                               },
                               [](void *self, uint32_t module) {
                                 const auto &parents = static_cast<Sweep *>(self)->parents;
                                 auto found = parents.find(module);
                                 return found == parents.end() ? 0u : found->second;
                               }};
    sweep = sl_sweep_new(&listener);
  }
  void TearDown() override {
    sl_sweep_free(sweep);
  }

  sl_allocation make(uint64_t bytes, int category, uint32_t module = 0) {
    sl_allocation a{};
    a.bytes = bytes;
    a.category = category;
    a.module = module;
    return a;
  }

  void add(sl_item_type type, sl_allocation *allocation) {
    sl_item item{};
    item.type = type;
    item.at_ns = ++clock;
    item.allocation = allocation;
    items.push_back(item);
  }
  void add(sl_item_type type, sl_phase *phase) {
    sl_item item{};
    item.type = type;
    item.at_ns = ++clock;
    item.phase = phase;
    items.push_back(item);
  }
  void window(sl_item_type type, uint32_t module, uint32_t call = 0) {
    sl_item item{};
    item.type = type;
    item.at_ns = ++clock;
    item.state = SL_STATE_peak_backward;
    item.module = module;
    item.call_index = call;
    items.push_back(item);
  }
  void run() {
    ASSERT_EQ(sl_sweep_retag(sweep, items.data(), items.size()), 0);
    ASSERT_EQ(sl_sweep_run(sweep, items.data(), items.size()), 0);
    items.clear();
  }

  sl_sweep *sweep = nullptr;
  std::vector<sl_item> items;
  std::vector<sl_sample> snapshots;
  std::vector<uint32_t> calls; // of the snapshots
  std::vector<Peak> peaks;
  std::map<uint32_t, uint32_t> parents; // of modules
  uint64_t clock = 0;
};

TEST_F(Sweep, ASnapshotHoldsTheTotalsOfItsInstantByCategory) {
  sl_allocation parameters = make(1000, SL_CATEGORY_param), scratch = make(500, SL_CATEGORY_temp);
  add(SL_ITEM_alloc, &parameters);
  add(SL_ITEM_alloc, &scratch);
  add(SL_ITEM_snapshot, (sl_phase *)nullptr);
  add(SL_ITEM_free, &scratch);
  add(SL_ITEM_snapshot, (sl_phase *)nullptr);
  run();
  ASSERT_EQ(snapshots.size(), 2u);
  EXPECT_EQ(snapshots[0].category_bytes[SL_CATEGORY_temp], 500u);
  EXPECT_EQ(snapshots[0].allocated_bytes, 1500u);
  EXPECT_EQ(snapshots[1].category_bytes[SL_CATEGORY_temp], 0u);
  EXPECT_EQ(snapshots[1].allocated_bytes, 1000u);
}

TEST_F(Sweep, APhasePeaksAtItsFirstHighestPointAndNotOutsideOfIt) {
  sl_phase phase{};
  sl_allocation a = make(100, SL_CATEGORY_temp), b = make(300, SL_CATEGORY_temp), c = make(900, SL_CATEGORY_temp);
  add(SL_ITEM_open, &phase);
  add(SL_ITEM_alloc, &a);
  add(SL_ITEM_alloc, &b);
  add(SL_ITEM_free, &b);
  add(SL_ITEM_close, &phase);
  add(SL_ITEM_alloc, &c);
  run();
  ASSERT_EQ(peaks.size(), 1u);
  EXPECT_EQ(peaks[0].allocated, 400u);
  EXPECT_EQ(peaks[0].at, 3u);
}

TEST_F(Sweep, WhatIsAliveWhenAPhaseBeginsCountsToItsPeak) {
  sl_phase phase{};
  sl_allocation a = make(100, SL_CATEGORY_param);
  add(SL_ITEM_alloc, &a);
  add(SL_ITEM_open, &phase);
  add(SL_ITEM_free, &a);
  add(SL_ITEM_close, &phase);
  run();
  EXPECT_EQ(peaks.at(0).allocated, 100u);
}

TEST_F(Sweep, OverlappingPhasesEndInAnyOrder) {
  sl_phase first{}, second{};
  first.module = 1;
  second.module = 2;
  sl_allocation a = make(10, SL_CATEGORY_temp), b = make(20, SL_CATEGORY_temp);
  add(SL_ITEM_open, &first);
  add(SL_ITEM_alloc, &a);
  add(SL_ITEM_open, &second);
  add(SL_ITEM_free, &a);
  add(SL_ITEM_close, &first);
  add(SL_ITEM_alloc, &b);
  add(SL_ITEM_close, &second);
  run();
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0].phase, &first);
  EXPECT_EQ(peaks[0].allocated, 10u);
  EXPECT_EQ(peaks[1].phase, &second);
  EXPECT_EQ(peaks[1].allocated, 20u);
}

TEST_F(Sweep, OwnBytesCountOnlyWhatTheModuleOwns) {
  sl_phase phase{};
  phase.module = 5;
  sl_allocation mine = make(10, SL_CATEGORY_activation, 5), other = make(1000, SL_CATEGORY_activation, 6);
  add(SL_ITEM_open, &phase);
  add(SL_ITEM_alloc, &mine);
  add(SL_ITEM_alloc, &other);
  add(SL_ITEM_close, &phase);
  run();
  EXPECT_EQ(peaks.at(0).own, 10u);
  EXPECT_EQ(peaks.at(0).allocated, 1010u);
}

TEST_F(Sweep, AParentIncludesItsChildrenAtTheSameInstantAndNotTheSumOfTheirPeaks) {
  parents = {{2, 1}, {3, 1}, {4, 3}};
  sl_phase phase{};
  phase.module = 1;
  sl_allocation own = make(1, SL_CATEGORY_param, 1), first = make(10, SL_CATEGORY_activation, 2),
                grandchild = make(100, SL_CATEGORY_activation, 4), stranger = make(1000, SL_CATEGORY_temp, 9);
  add(SL_ITEM_open, &phase);
  add(SL_ITEM_alloc, &own);
  add(SL_ITEM_alloc, &first);
  add(SL_ITEM_free, &first);
  add(SL_ITEM_alloc, &grandchild);
  add(SL_ITEM_alloc, &stranger);
  add(SL_ITEM_free, &grandchild);
  add(SL_ITEM_close, &phase);
  run();
  EXPECT_EQ(peaks.at(0).own, 1u);
  EXPECT_EQ(peaks.at(0).with_children, 101u) << "never were all of them alive together";
}

TEST_F(Sweep, ChildrenCountToEveryModuleAboveThemFromBeforeItsPhase) {
  parents = {{2, 1}, {3, 2}};
  sl_phase top{}, middle{};
  top.module = 1;
  middle.module = 2;
  sl_allocation before = make(7, SL_CATEGORY_param, 3), moved = make(20, SL_CATEGORY_unattributed);
  add(SL_ITEM_alloc, &before);
  add(SL_ITEM_alloc, &moved);
  run();
  moved.module = 2;
  add(SL_ITEM_retag, &moved);
  add(SL_ITEM_open, &top);
  add(SL_ITEM_open, &middle);
  add(SL_ITEM_close, &middle);
  add(SL_ITEM_close, &top);
  run();
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0].own, 20u);
  EXPECT_EQ(peaks[0].with_children, 27u);
  EXPECT_EQ(peaks[1].own, 0u);
  EXPECT_EQ(peaks[1].with_children, 27u);
}

TEST_F(Sweep, ParentsInACircleEndAllTheSame) {
  parents = {{1, 2}, {2, 1}};
  sl_phase phase{};
  phase.module = 1;
  sl_allocation a = make(10, SL_CATEGORY_param, 1);
  add(SL_ITEM_alloc, &a);
  add(SL_ITEM_free, &a);
  add(SL_ITEM_open, &phase);
  add(SL_ITEM_close, &phase);
  run();
  EXPECT_EQ(peaks.at(0).with_children, 0u) << "what was added is taken away again";
}

TEST_F(Sweep, ARetaggedAllocationMovesItsBytes) {
  sl_allocation a = make(10, SL_CATEGORY_unattributed);
  add(SL_ITEM_alloc, &a);
  run();
  a.category = SL_CATEGORY_optstate;
  add(SL_ITEM_retag, &a);
  add(SL_ITEM_snapshot, (sl_phase *)nullptr);
  run();
  EXPECT_EQ(snapshots.at(0).category_bytes[SL_CATEGORY_unattributed], 0u);
  EXPECT_EQ(snapshots.at(0).category_bytes[SL_CATEGORY_optstate], 10u);
  EXPECT_EQ(snapshots.at(0).allocated_bytes, 10u);
}

TEST_F(Sweep, ARetagHoldsForTheWholeStep) {
  sl_allocation a = make(10, SL_CATEGORY_other);
  add(SL_ITEM_alloc, &a);
  run();
  a.category = SL_CATEGORY_input;
  add(SL_ITEM_snapshot, (sl_phase *)nullptr);
  add(SL_ITEM_retag, &a);
  run();
  EXPECT_EQ(snapshots.at(0).category_bytes[SL_CATEGORY_other], 0u);
  EXPECT_EQ(snapshots.at(0).category_bytes[SL_CATEGORY_input], 10u);
}

TEST_F(Sweep, WindowsOfOneModuleAreReportedByTheirOwnHighestPoints) {
  sl_allocation low = make(100, SL_CATEGORY_temp), high = make(300, SL_CATEGORY_temp);
  window(SL_ITEM_window_open, 7, 0);
  add(SL_ITEM_alloc, &low);
  window(SL_ITEM_window_close, 7);
  window(SL_ITEM_window_close, 7); // nothing is open
  add(SL_ITEM_free, &low);
  window(SL_ITEM_window_open, 7, 1);
  add(SL_ITEM_alloc, &high);
  run();
  ASSERT_EQ(snapshots.size(), 2u) << "what is open at the end is reported as well";
  EXPECT_EQ(snapshots[0].allocated_bytes, 100u);
  EXPECT_EQ(snapshots[1].allocated_bytes, 300u);
  EXPECT_EQ(calls, (std::vector<uint32_t>{0, 1}));
}

TEST_F(Sweep, TotalsGoOnIntoTheNextStepAndOpenPhasesAreReported) {
  sl_phase phase{};
  sl_allocation a = make(10, SL_CATEGORY_param);
  add(SL_ITEM_alloc, &a);
  add(SL_ITEM_open, &phase);
  run();
  ASSERT_EQ(peaks.size(), 1u) << "the log ended inside of it";
  add(SL_ITEM_snapshot, (sl_phase *)nullptr);
  run();
  EXPECT_EQ(snapshots.at(0).allocated_bytes, 10u);
}

} // namespace

/* The public C API, through the reader. */
#include "plugin/recorded.h"

#include "plugin/shardledger.h"

extern "C" {
#include "plugin/log/event_log.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace {

TEST(Api, RecordsFactsAboutTheProcessAndItsModules) {
  Recording recording = record({}, [] {
    EXPECT_EQ(sl_api_version(), (uint32_t)SL_API_VERSION);
    EXPECT_EQ(sl_recording(), 1);
    EXPECT_STREQ(sl_directory(), "");
    sl_info("torch_version", "2.11.0");
    sl_info(nullptr, "x");
    sl_source_state("torch_bridge", "failed", "no compiler");
    sl_module(1, 0, "", "Model", SL_MODULE_ROOT | SL_MODULE_FSDP, 0, 4096, 16);
    sl_module(2, 1, "layers.0", "Block", 0, 1, 1024, 0);
    sl_tag(1, 0x7000, "sharded_param", 2, "layers.0.weight");
    EXPECT_STRNE(sl_directory(), "");
    EXPECT_TRUE(std::filesystem::is_directory(sl_directory()));
  });
  EXPECT_EQ(recording.state("torch_bridge"), "failed: no compiler");
  auto modules = ALL(recording, module);
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(recording.name(modules[1].fqn), "layers.0");
  EXPECT_EQ(recording.name(modules[1].class_name), "Block");
  EXPECT_EQ(modules[0].flags, (uint32_t)(SL_MODULE_ROOT | SL_MODULE_FSDP));
  EXPECT_EQ(modules[0].parameter_bytes, 4096u);
  auto tags = ALL(recording, tag);
  ASSERT_EQ(tags.size(), 1u);
  EXPECT_EQ(tags[0].address, 0x7000u);
  EXPECT_EQ(tags[0].device, 1u);
  EXPECT_EQ(tags[0].module, 2u);
  EXPECT_EQ(recording.name(tags[0].category), "sharded_param");
  EXPECT_EQ(recording.name(tags[0].name), "layers.0.weight");
}

TEST(Api, NumbersAllocatorEventsOfEachDeviceInTheOrderOfTheirLock) {
  Recording recording = record({}, [] {
    std::mutex locks[2];
    uint64_t order[2] = {};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
      threads.emplace_back([&] {
        for (int i = 0; i < 4'000; i++) {
          const int device = i % 2;
          std::lock_guard<std::mutex> lock(locks[device]);
          sl_allocator_event(device, SL_ALLOC, order[device]++, 512, 0, 0, 0);
        }
      });
    for (auto &thread : threads)
      thread.join();
    EXPECT_EQ(sl_allocator_sequence(0), 8'000u);
    EXPECT_EQ(sl_allocator_sequence(1), 8'000u);
    EXPECT_EQ(sl_allocator_sequence(2), 0u);
    EXPECT_EQ(sl_allocator_sequence(-1), 0u);
    sl_allocator_stats(0, sl_allocator_sequence(0), 1, 2, 3, 4);
  });
  std::map<uint32_t, uint32_t> device_of;
  for (const auto &place : ALL(recording, allocator_place))
    device_of[place.id] = place.device;
  uint64_t next[2] = {};
  for (const auto &event : ALL(recording, allocator)) {
    uint64_t &expected = next[device_of.at(event.place)];
    ASSERT_EQ(event.sequence, expected);
    ASSERT_EQ(event.address, expected++) << "the read order is that of the lock";
  }
  EXPECT_EQ(next[0], 8'000u);
  EXPECT_EQ(next[1], 8'000u);
  EXPECT_EQ(ALL(recording, gap).size(), 0u);
  auto stats = ALL(recording, allocator_stats);
  ASSERT_EQ(stats.size(), 1u);
  EXPECT_EQ(stats[0].sequence, 8'000u);
  EXPECT_EQ(stats[0].reserved_bytes, 4u);
}

TEST(Api, GivesEveryDeviceStreamAndPoolAPlaceOfItsOwn) {
  Recording recording = record({}, [] {
    for (uint64_t i = 0; i < 500; i++)
      for (int again = 0; again < 2; again++)
        sl_allocator_event((int)(i % 3), SL_ALLOC, i, 512, i / 3 % 5, i / 15 % 4, i / 60);
  });
  std::map<uint32_t, sl_event_allocator_place> places;
  for (const auto &place : ALL(recording, allocator_place))
    EXPECT_TRUE(places.emplace(place.id, place).second);
  EXPECT_EQ(places.size(), 500u);
  for (const auto &event : ALL(recording, allocator)) {
    const auto &place = places.at(event.place);
    EXPECT_EQ(place.device, event.address % 3);
    EXPECT_EQ(place.stream, event.address / 3 % 5);
    EXPECT_EQ(place.pool_owner, event.address / 15 % 4);
    EXPECT_EQ(place.pool_id, event.address / 60);
  }
}

TEST(Api, GoesOnWithoutPlacesWhenThereAreTooMany) {
  Recording recording = record({}, [] {
    for (uint64_t i = 0; i < 3'000; i++)
      sl_allocator_event(0, SL_ALLOC, i, 512, i, 0, 0);
  });
  EXPECT_EQ(ALL(recording, allocator).size(), 3'000u);
  EXPECT_EQ(ALL(recording, allocator_place).size(), 2'048u);
  EXPECT_EQ(ALL(recording, allocator).back().place, 0u);
}

TEST(Api, GivesEachAllocatorEventItsOwnTime) {
  Recording recording = record({}, [] {
    sl_allocator_event(0, SL_ALLOC, 1, 512, 0, 0, 0);
    sl_allocator_event(0, SL_FREE_REQUESTED, 1, 512, 0, 0, 0);
    usleep(1000); /* another stream still uses the block */
    sl_allocator_event(0, SL_FREE_COMPLETED, 1, 512, 0, 0, 0);
  });
  const auto events = recording.of(SL_EVENT_allocator);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_GE(events[2].time_ns - events[1].time_ns, 1'000'000u);
}

TEST(Api, AnEventThatIsToldLaterHasItsOwnTimeInFrontOfIt) {
  Recording recording = record({}, [] {
    sl_allocator_event_at(2, SL_ALLOC, 1, 512, 0, 0, 0, 77'500);
    sl_allocator_event_at(2, SL_FREE_REQUESTED, 1, 512, 0, 0, 0, 0);
    sl_allocator_told(99'000);
    EXPECT_EQ(sl_allocator_sequence(2), 2u);
  });
  std::vector<uint8_t> order;
  for (const Event &event : recording.events)
    if (event.type == SL_EVENT_allocator || event.type == SL_EVENT_allocator_time ||
        event.type == SL_EVENT_allocator_told)
      order.push_back(event.type);
  EXPECT_EQ(order, (std::vector<uint8_t>{SL_EVENT_allocator_time, SL_EVENT_allocator, SL_EVENT_allocator,
                                         SL_EVENT_allocator_told}));
  const auto time = ALL(recording, allocator_time)[0];
  EXPECT_EQ(time.at_ns, 77'500u);
  EXPECT_EQ(time.sequence, 0u);
  EXPECT_EQ(time.device, 2u);
  EXPECT_EQ(ALL(recording, allocator_told)[0].until_ns, 99'000u);
}

TEST(Api, CountsAllocatorEventsThatAPauseLeftOut) {
  Recording recording = record({}, [] {
    sl_allocator_event(0, SL_ALLOC, 1, 512, 0, 0, 0);
    sl_pause();
    EXPECT_EQ(sl_recording(), 0);
    for (int i = 0; i < 10; i++)
      sl_allocator_event(0, SL_ALLOC, 2, 512, 0, 0, 0);
    sl_resume();
    sl_allocator_event(0, SL_ALLOC, 3, 512, 0, 0, 0);
    sl_pause();
    for (int i = 0; i < 5; i++)
      sl_allocator_event(0, SL_ALLOC, 4, 512, 0, 0, 0);
    sl_resume();
  });
  uint64_t lost = 0;
  for (const auto &gap : ALL(recording, gap))
    lost += gap.lost;
  EXPECT_EQ(ALL(recording, allocator).size(), 2u);
  EXPECT_EQ(lost, 15u) << "ten as a hole in the sequence, five behind its end";
}

TEST(Api, CountsDevicesThatAreOutOfRange) {
  Recording recording = record({}, [] {
    sl_allocator_event(-1, SL_ALLOC, 1, 512, 0, 0, 0);
    sl_allocator_event(64, SL_ALLOC, 1, 512, 0, 0, 0);
  });
  EXPECT_EQ(ALL(recording, allocator).size(), 0u);
  EXPECT_EQ(ALL(recording, gap).size(), 2u);
}

TEST(Api, RecordsWhatTheAllocatorHeldBeforeRecording) {
  Recording recording = record({}, [] {
    sl_allocator_event(1, SL_ALLOC, 1, 512, 9, 2, 3);
    sl_allocator_restore(1, sl_allocator_sequence(1), 1, 2);
    sl_allocator_existing(1, 0x1000, 1024, 1000, 9, 2, 3, SL_BLOCK_ALLOCATED, 1);
    sl_allocator_existing(1, 0x1400, 2048, 0, 9, 2, 3, SL_BLOCK_FREE, 0);
    sl_allocator_restore(64, 0, 1, 1);
    sl_allocator_existing(-1, 0x1000, 1024, 1000, 9, 2, 3, SL_BLOCK_ALLOCATED, 1);
  });
  auto restored = ALL(recording, allocator_restore);
  ASSERT_EQ(restored.size(), 1u);
  EXPECT_EQ(restored[0].device, 1u);
  EXPECT_EQ(restored[0].sequence, 1u);
  EXPECT_EQ(restored[0].blocks, 2u);
  auto blocks = ALL(recording, allocator_existing);
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].requested_bytes, 1000u);
  EXPECT_EQ(blocks[0].state, SL_BLOCK_ALLOCATED);
  EXPECT_EQ(blocks[0].starts_segment, 1u);
  EXPECT_EQ(blocks[1].starts_segment, 0u);
  EXPECT_EQ(blocks[0].place, ALL(recording, allocator)[0].place) << "the same stream and pool";
}

} // namespace

// What a log costs its reader: time that grows with its size, and memory that does not grow beyond that, for every kind
// of record. Each log is built twice, the second time four times as long, and made into a ledger in a child process.
#include "fakes/log_builder.h"
#include "fakes/sanitizers.h"
#include "plugin/format/log_format.h"

extern "C" {
#include "storage/ledger.h"
}

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

constexpr uint64_t SMALL = SANITIZED ? 1000 : 4000; // a sanitizer takes memory of its own
constexpr uint64_t BASE = 1ull << 40, MiB = 1 << 20;
constexpr double QUADRATIC = 8, SLACK_S = 0.1; // four times as long a log takes four times as long, and not sixteen

struct Cost {
  double seconds; // of the processor
  uint64_t bytes; // the most memory
  int result;
};

Cost cost_of(const fs::path &run) {
  const fs::path output = run.string() + ".sqlite";
  const pid_t child = fork();
  if (child == 0) {
    sl_error note{}, error{};
    const int r = sl_ledger_build(run.c_str(), output.c_str(), nullptr, &note, &error);
    _exit(r == 0 ? 0 : r == -EBADMSG ? 2 : 1);
  }
  int status = 0;
  rusage used{};
  EXPECT_EQ(wait4(child, &status, 0, &used), child);
  fs::remove(output);
  const auto seconds = [](const timeval &time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; };
  return {seconds(used.ru_utime) + seconds(used.ru_stime), (uint64_t)used.ru_maxrss * 1024,
          WIFEXITED(status) ? WEXITSTATUS(status) : -1};
}

class Directory {
public:
  Directory() {
    path = fs::temp_directory_path() / ("scale-" + std::to_string(getpid()));
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Directory() {
    fs::remove_all(path);
  }
  fs::path path;
};

/* Time counts where no sanitizer multiplies it, and as the least of several tries of each: others use the machine too.
 */
bool is_linear_in_time(const fs::path &empty, const fs::path &small, const fs::path &large, std::string *figures) {
  const double never = 1e9;
  double least = never, one = never, four = never;
  for (int attempt = 0; attempt < 12; attempt++) {
    least = std::min(least, cost_of(empty).seconds);
    one = std::min(one, cost_of(small).seconds);
    four = std::min(four, cost_of(large).seconds);
    if (four - least < QUADRATIC * (one - least) + SLACK_S)
      return true;
  }
  *figures = std::to_string(one) + " s, of a log four times as long " + std::to_string(four) + " s, of none " +
             std::to_string(least) + " s";
  return false;
}

void expect_linear(const std::function<void(const fs::path &, uint64_t)> &write, uint64_t size) {
  Directory scratch;
  const fs::path empty = scratch.path / "empty", small = scratch.path / "small", large = scratch.path / "large";
  { LogBuilder(empty / "host-1-1").info("rank", "0"); }
  write(small / "host-1-1", size);
  const Cost one = cost_of(small);
  EXPECT_EQ(one.result, 0);
  if (SANITIZED)
    return;
  write(large / "host-1-1", 4 * size);
  const Cost four = cost_of(large), least = cost_of(empty);
  EXPECT_EQ(four.result, 0);
  const auto above_least = [&](const Cost &cost) { return cost.bytes > least.bytes ? cost.bytes - least.bytes : 0; };
  EXPECT_LT(above_least(four), 6 * above_least(one) + 16 * MiB)
      << one.bytes / MiB << " MiB, of a log four times as long " << four.bytes / MiB << " MiB";
  EXPECT_LT(four.bytes, 256 * MiB);
  std::string figures;
  EXPECT_TRUE(is_linear_in_time(empty, small, large, &figures)) << figures;
}

/* ---- one log for each kind of record ---- */

using Thread = LogBuilder::Thread;

struct Kind {
  const char *name;
  void (*write)(LogBuilder &log, uint64_t count);
};

void blocks(LogBuilder &log, uint64_t count) {
  Thread &t = log.thread(1);
  t.at(1).allocator(SL_SEGMENT_ALLOC, BASE, count * 512);
  for (uint64_t i = 0; i < count; i++)
    t.at(2 + i).allocator(SL_ALLOC, BASE + 512 * i, 512);
}

void define_module(LogBuilder &log, uint64_t id, uint64_t parent, const char *name, uint64_t depth) {
  log.module((uint32_t)id, (uint32_t)parent, name, "M", 0, (uint32_t)depth);
}

const std::string long_name(1000, 'x');

const Kind kinds[] = {
    {"Infos",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.info("key " + std::to_string(i), "value");
     }},
    {"InfosWithoutAKey",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.define(sl_event_info{(uint32_t)i + 1000, 1});
     }},
    {"ModulesOfOneParent",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 1; i <= n; i++)
         define_module(log, i, i > 1, long_name.c_str(), i > 1);
     }},
    {"ModulesWithinModules",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 1; i <= n; i++)
         define_module(log, i, i - 1, long_name.c_str(), i - 1);
     }},
    {"ModulesWithAnyIds",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 1; i <= n; i++)
         define_module(log, (i * 2654435761u) & 0xffffffff, ((i - 1) * 2654435761u) & 0xffffffff, "x", 1);
     }},
    {"RangesWithinRanges",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).range_push("r");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i).range_pop();
     }},
    {"OpenRanges",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).range_start(i + 1, "r");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i).range_end(i + 1);
     }},
    {"Steps",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(2 * i + 1).range_start(i + 1, "step", SL_KIND_step, i).at(2 * i + 2).range_end(i + 1);
     }},
    {"StepsOfOneNumber",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(2 * i + 1).range_start(i + 1, "step", SL_KIND_step, 0).at(2 * i + 2).range_end(i + 1);
     }},
    {"Threads",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1 + (uint32_t)i).at(i).range_push("r");
     }},
    {"ThreadsThatWaitForWhatNeverComes",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++) {
         log.sequence(0) = (uint32_t)(2 * i + 5);
         log.thread(1 + (uint32_t)i).at(1).allocator(SL_ALLOC, 0x1000 * (i + 1), 512);
       }
     }},
    {"ThreadsThatAllWork",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1 + (uint32_t)i % 1000).at(i).allocator(SL_ALLOC, 0x1000 * (i + 1), 512);
     }},
    {"Domains",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.define(sl_event_nvtx_domain{(uint32_t)i + 10, log.string("d")});
     }},
    {"Places",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.define(sl_event_allocator_place{(uint32_t)(i % 65000) + 10, 0, i, 0, 0});
     }},
    {"Communicators",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_nccl_communicator{i + 1, 2, 0, log.string("c"), 0});
     }},
    {"CommunicatorsThatAreMade",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).range_push("ncclCommInitRank", 0, 0, "NCCL").range_pop("NCCL");
     }},
    {"CallsOfNccl",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t name = log.string("AllGather");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_nccl_call{i + 1, i, 100, 0x1000, 0x2000, name, name, name, name, 0, 1, 0});
     }},
    {"CallsOfNcclThatWait",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t name = log.string("AllGather");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).range_push("ncclAllGather", 0, 0, "NCCL").range_pop("NCCL");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i).append(sl_event_nccl_call{1, i, 100, 0x1000, 0x2000, name, name, name, name, 0, 1, 0});
     }},
    {"ThreadsThatCallNccl",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(10 + (uint32_t)i).at(i).range_push("ncclAllGather", 0, 0, "NCCL");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i).append(sl_event_launch{(uint32_t)i + 1, 0});
     }},
    {"Contexts",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_context{(uint32_t)i, 0, 1});
     }},
    {"GpuModules",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_gpu_module{1000, (uint32_t)i, 0, 1});
     }},
    {"Sources",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.source_state("source " + std::to_string(i), "on");
     }},
    {"Allocations", blocks},
    {"Segments",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).allocator(SL_SEGMENT_ALLOC, BASE + 2 * MiB * i, 2 * MiB);
     }},
    {"Tags",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).tag(0x1000 * i, "weights");
     }},
    {"TagsOfAnyModules",
     [](LogBuilder &log, uint64_t n) {
       blocks(log, n);
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).tag(BASE + 512 * i, "weights", (uint32_t)(i * 2654435761u));
     }},
    {"CategoriesOfUsers",
     [](LogBuilder &log, uint64_t n) {
       blocks(log, n);
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).tag(BASE + 512 * i, "category " + std::to_string(i));
     }},
    {"Kernels",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t name = log.string("kernel");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_kernel{1 + i, 1 + n * 2 - i, name, (uint32_t)i, (uint32_t)i, 0, 0});
     }},
    {"CopiesAndMemsets",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1)
             .at(i)
             .append(sl_event_memory_copy{1 + i, 2 + i, 10, (uint32_t)i, 1, 0, 1, 0, 0, 0, 0})
             .append(sl_event_memory_set{1 + i, 2 + i, 10, (uint32_t)i, 1, 0, 0, 0});
     }},
    {"DriverAllocations",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t owner = log.string("libnccl.so"), api = log.string("cuMemAlloc_v2");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_driver_allocation{0x100000 * i, 4096, 0, owner, api, 0, 1});
     }},
    {"OwnersOfDriverAllocations",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t api = log.string("cuMemAlloc_v2");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_driver_allocation{
             0x100000 * i, 4096, 0, log.string("lib" + std::to_string(i) + ".so"), api, 0, 1});
     }},
    {"Refusals",
     [](LogBuilder &log, uint64_t n) {
       log.device(0, "GPU", 80ull << 30);
       blocks(log, n);
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i + 2).allocator(SL_OUT_OF_MEMORY, 1000, 5 * MiB);
     }},
    {"RefusalsAmongFreeBlocks",
     [](LogBuilder &log, uint64_t n) {
       blocks(log, n);
       for (uint64_t i = 0; i < n; i += 2) {
         const uint64_t address = BASE + 512 * i;
         Thread &t = log.thread(1).at(n + i + 2);
         t.allocator(SL_FREE_REQUESTED, address, 512).allocator(SL_FREE_COMPLETED, address, 512);
         t.allocator(SL_OUT_OF_MEMORY, 1000, 5 * MiB);
       }
     }},
    {"RefusalsOfTheDriver",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t owner = log.string("libx.so"), api = log.string("cuMemAlloc_v2");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_driver_failure{1000 + i, owner, api, 2, 0});
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i).append(sl_event_driver_allocation{0x100000 * i, 1000, 0, owner, api, 0, 1});
     }},
    {"Schemas",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t name = log.string("x");
       for (uint64_t i = 0; i < n; i++)
         log.define(sl_event_nvtx_schema_entry{1000, 1, i, 3, name, name, 0});
     }},
    {"Forwards",
     [](LogBuilder &log, uint64_t n) {
       log.thread(1).at(1).allocator(SL_SEGMENT_ALLOC, BASE, n * 512 + 512).range_start(1, "step", SL_KIND_step, 0);
       for (uint64_t i = 0; i < n; i++) {
         define_module(log, i + 1, i, "x", i);
         log.thread(1).at(i + 2).range_push("m", SL_KIND_forward, i + 1).allocator(SL_ALLOC, BASE + 512 * i, 512);
       }
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(n + i + 2).range_pop();
       log.thread(1).at(2 * n + 5).range_end(1);
     }},
    {"BlocksFromBefore",
     [](LogBuilder &log, uint64_t n) {
       const uint16_t place = log.place(0);
       log.define(sl_event_allocator_restore{0, 1, (uint32_t)n, 0});
       for (uint64_t i = 0; i < n; i++)
         log.define(sl_event_allocator_existing{BASE + 512 * i, 512, 512, 0, place, 1, i == 0});
     }},
    {"Gaps",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).gap("log", "log", 1);
     }},
    {"NamesOfThreads",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.define(sl_event_thread_name{(uint32_t)i, log.string("t")});
     }},
    {"Devices",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.device((uint32_t)i, "GPU", 1000);
     }},
    {"SamplesOfTheDevice",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_device_sample{1ull << 36, (1ull << 36) - i * 1000, 0, 0});
     }},
    {"Payloads",
     [](LogBuilder &log, uint64_t n) {
       const uint32_t domain = log.domain("NCCL");
       for (uint64_t i = 0; i < n; i++)
         log.thread(1)
             .at(i)
             .range_push("ncclAllGather", 0, 0, "NCCL")
             .append(sl_event_range_payload{(1 << 24) + 1, 24, domain}, std::string(24, 'p'))
             .range_pop("NCCL");
     }},
    {"Statistics",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).at(i).append(sl_event_allocator_stats{0, 0, 0, 0, (uint32_t)i, 0});
     }},
    {"TimesThatGoBack",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).append(sl_event_time_base{(i * 7919) % (1ull << 62)}).range_push("x").range_pop();
     }},
    {"ModuleBackwardsThatAreOpen",
     [](LogBuilder &log, uint64_t n) {
       Thread &t = log.thread(1);
       for (uint64_t i = 0; i < n; i++)
         define_module(log, i + 1, i ? 1 : 0, "x", 1);
       t.at(0).range_start(1, "step", SL_KIND_step, 0).range_push("backward", SL_KIND_backward, 0);
       for (uint64_t i = 0; i < n; i++)
         t.at(i + 2).range_start(i + 5, "b", SL_KIND_backward, i + 1);
       for (uint64_t i = 0; i < n; i++)
         t.at(n + i + 2).range_end(i + 5);
       t.at(3 * n).range_pop().range_end(1);
     }},
    {"RecordsOfANewerVersion",
     [](LogBuilder &log, uint64_t n) {
       for (uint64_t i = 0; i < n; i++)
         log.thread(1).append_bytes(200, &i, sizeof i, "");
     }},
};

void PrintTo(const Kind &kind, std::ostream *out) {
  *out << kind.name;
}

class Scale : public ::testing::TestWithParam<Kind> {};

TEST_P(Scale, TimeAndMemoryGrowWithTheLog) {
  expect_linear(
      [](const fs::path &process, uint64_t count) {
        LogBuilder log(process, 1);
        log.info("rank", "0");
        GetParam().write(log, count);
        log.finish(LogBuilder::Files::sealed);
      },
      SMALL);
}

INSTANTIATE_TEST_SUITE_P(Of, Scale, ::testing::ValuesIn(kinds), [](const auto &info) { return info.param.name; });

/* ---- files that promise more than they are ---- */

std::string frame(uint32_t number, uint32_t thread, const std::string &compressed, uint32_t raw_bytes) {
  sl_segment_header header = {};
  header.magic = SL_SEGMENT_MAGIC;
  header.version = 1;
  header.number = number;
  header.bytes = SL_SEGMENT_BYTES;
  header.thread = thread;
  header.tid = 1000 + thread;
  header.base_ns = 1;
  header.process_key = 1;
  header.check = XXH3_64bits(&header, offsetof(sl_segment_header, check));
  sl_frame_header frame = {};
  frame.magic = SL_FRAME_MAGIC;
  frame.version = 1;
  frame.number = number;
  frame.raw_bytes = raw_bytes;
  frame.compressed_bytes = (uint32_t)compressed.size();
  frame.check =
      XXH3_64bits_withSeed(compressed.data(), compressed.size(), XXH3_64bits(&frame, offsetof(sl_frame_header, check)));
  return std::string((const char *)&frame, sizeof frame) + std::string((const char *)&header, sizeof header) +
         compressed;
}

/* Marks of no name, all at one instant; before them an allocator event that waits for its turn. */
std::string marks(uint64_t bytes, uint32_t sequence) {
  std::string records;
  const auto add = [&](uint8_t type, const void *fields, size_t size) {
    const sl_record_header header = {type, (uint8_t)(1 + size / 8), 0, 0};
    records.append((const char *)&header, sizeof header).append((const char *)fields, size);
  };
  const sl_event_allocator waits = {0x1000, 512, sequence, 1, SL_ALLOC, 0};
  const sl_event_range_mark mark = {};
  add(SL_EVENT_allocator, &waits, sizeof waits);
  while (records.size() + 8 + sizeof mark <= bytes)
    add(SL_EVENT_range_mark, &mark, sizeof mark);
  return records;
}

std::string compressed(const std::string &records) {
  std::string out(ZSTD_compressBound(records.size()), '\0');
  out.resize(ZSTD_compress(&out[0], out.size(), records.data(), records.size(), 3));
  return out;
}

/* A log of some KiB, of so many threads with segments of so many bytes, that all wait. */
void write_bomb(const fs::path &process, uint32_t threads, uint64_t bytes) {
  LogBuilder(process, 1).place(0);
  std::ofstream file(process / SL_SEALED_NAME, std::ios::binary);
  for (uint32_t i = 0; i < threads; i++) {
    const std::string records = marks(bytes, 2 * i + 5);
    file << frame(1000 + i, 1 + i, compressed(records), (uint32_t)records.size());
  }
}

TEST(Bombs, SegmentsOfManyThreadsTakeABoundedAmountOfMemory) {
  Directory scratch;
  write_bomb(scratch.path / "run" / "host-1-1", SANITIZED ? 20 : 1000, SL_SEGMENT_BYTES - 64); // 250 MiB
  const Cost cost = cost_of(scratch.path / "run");
  EXPECT_EQ(cost.result, 0);
  if (!SANITIZED) {
    EXPECT_LT(cost.bytes, 200 * MiB);
  }
}

TEST(Bombs, ASegmentIsAsLargeAsAWriterMakesItAndNoLarger) {
  Directory scratch;
  write_bomb(scratch.path / "run" / "host-1-1", 30, 16 * MiB);
  const Cost cost = cost_of(scratch.path / "run");
  EXPECT_EQ(cost.result, 0) << "the definitions are there";
  EXPECT_LT(cost.seconds, SANITIZED ? 10 : 1);
  if (!SANITIZED) {
    EXPECT_LT(cost.bytes, 64 * MiB);
  }
}

/* Each a frame header that promises the rest of the file, with a segment's header or without. */
void write_frame_headers(const fs::path &process, uint64_t count, bool with_segments) {
  LogBuilder(process, 1).info("rank", "0");
  std::string text = frame(5, 1, "", 100);
  text.resize(with_segments ? text.size() : sizeof(sl_frame_header));
  const uint32_t promised = 200 * 1024;
  memcpy(&text[offsetof(sl_frame_header, compressed_bytes)], &promised, sizeof promised);
  std::ofstream file(process / SL_SEALED_NAME, std::ios::binary);
  for (uint64_t i = 0; i < count; i++)
    file << text;
}

TEST(Bombs, FrameHeadersThatPromiseTheRestOfTheFileCostNoMoreThanTheirBytes) {
  for (bool with_segments : {false, true})
    expect_linear(
        [&](const fs::path &process, uint64_t count) { write_frame_headers(process, 4 * count, with_segments); },
        SMALL);
}

TEST(Bombs, WhatASparseFileDoesNotHaveIsNotRead) {
  Directory scratch;
  const fs::path process = scratch.path / "run" / "host-1-1";
  LogBuilder(process, 1).info("rank", "0");
  std::ofstream(process / SL_SEALED_NAME) << "no frame";
  std::ofstream(process / "000000ff.slog") << "no segment";
  for (const char *name : {SL_SEALED_NAME, "000000ff.slog", "00000000.slog"})
    fs::resize_file(process / name, 1ull << 40);
  const Cost cost = cost_of(scratch.path / "run");
  EXPECT_EQ(cost.result, 0);
  EXPECT_LT(cost.seconds, SANITIZED ? 10 : 2);
  if (!SANITIZED) {
    EXPECT_LT(cost.bytes, 64 * MiB);
  }
}

} // namespace

#include "fakes/fleet.h"

#include "fakes/log_builder.h"
#include "plugin/format/log_format.h"

#include <cstring>
#include <sstream>
#include <stdexcept>

namespace {

constexpr uint64_t MiB = 1 << 20, ms = 1'000'000;
constexpr uint64_t STEP_NS = 100 * ms;
constexpr uint64_t SHARD = 8 * MiB, STATE = 16 * MiB, GATHERED = 32 * MiB, ACTIVATION = 48 * MiB;
constexpr uint64_t STATIC_SCHEMA = 1 << 24; /* NCCL's schemas count from here */
enum : uint64_t { UINT64 = 18, SIZE = 22, INT = 5 };
enum : uint64_t { ALL_GATHER = 4, INIT_RANK = 11 };

bool has(const FleetRanks &ranks, uint32_t rank) {
  return ranks.count(rank) > 0;
}

/* The events of one rank, in the order of its life. */
class Rank {
public:
  Rank(const std::filesystem::path &directory, const Fleet &fleet, uint32_t rank)
      : fleet(fleet), rank(rank), host(rank / fleet.ranks_per_host), clock_ns(clock_of(fleet, host)),
        log(directory / (host_name() + "-" + std::to_string(1000 + rank) + "-1"), fleet.start_ns + (uint64_t)clock_ns),
        main(log.thread(1)) {}

  void write() {
    describe();
    setup();
    for (uint32_t step = 0; step < fleet.steps; step++)
      if (!run_step(step))
        return log.finish(LogBuilder::Files::sealed);
    at(step_ns(fleet.steps)).process_end();
    log.finish(LogBuilder::Files::sealed);
  }

private:
  static int64_t clock_of(const Fleet &fleet, uint32_t host) {
    const auto found = fleet.clocks_ns.find(host);
    return found == fleet.clocks_ns.end() ? 0 : found->second;
  }

  std::string host_name() const {
    char name[32];
    snprintf(name, sizeof name, "gpu-node-%02u", host);
    return name;
  }

  /* Time on the job's own clock, written as the host's. */
  LogBuilder::Thread &at(uint64_t ns) {
    return main.at(ns + (uint64_t)clock_ns);
  }

  uint64_t step_ns(uint32_t step) const {
    return fleet.start_ns + 1000 * ms + step * STEP_NS;
  }

  void describe() {
    std::map<std::string, std::string> infos = {
        {"rank", std::to_string(rank)},
        {"world_size", std::to_string(fleet.ranks)},
        {"local_rank", std::to_string(rank % fleet.ranks_per_host)},
        {"host", host_name()},
        {"pid", std::to_string(1000 + rank)},
        {"start_ns", std::to_string(fleet.start_ns + (uint64_t)clock_ns + rank * 1000)},
        {"torch_version", "2.11.0"},
        {"nccl_version", "2.28.9"},
        {"shardledger_version", "0.1.0"},
    };
    if (!fleet.mesh.empty())
      infos["mesh.0"] = mesh_place();
    for (const auto &[key, value] : fleet.infos)
      infos[key] = value;
    for (const auto &[key, value] : infos)
      if (!value.empty())
        log.info(key, value);
    log.device(0, "NVIDIA H100 80GB HBM3", 80ull << 30, "GPU-" + std::to_string(rank));
    for (const char *source : {"cupti_callback", "cupti_activity", "nvtx", "torch_bridge", "companion"})
      log.source_state(source, "on");
    domain = log.domain("NCCL");
    schema(ALL_GATHER, UINT64, 0, "NCCL communicator ID");
    schema(ALL_GATHER, SIZE, 8, "Message size [bytes]");
    schema(INIT_RANK, UINT64, 0, "NCCL communicator ID");
    schema(INIT_RANK, INT, 8, "No. of ranks");
    schema(INIT_RANK, INT, 12, "Rank");
    log.module(1, 0, "", "Model", SL_MODULE_FSDP | SL_MODULE_ROOT, 0, fleet.blocks * SHARD);
    for (uint32_t block = 0; block < fleet.blocks; block++)
      log.module(2 + block, 1, block_name(block), "Block", SL_MODULE_FSDP, 1, SHARD);
  }

  std::string mesh_place() const {
    std::string text;
    uint32_t inner = 1;
    for (auto dim = fleet.mesh.rbegin(); dim != fleet.mesh.rend(); inner *= dim++->second)
      text = std::to_string(dim->second) + ":" + std::to_string(rank / inner % dim->second) + ":" + dim->first +
             (text.empty() ? "" : " ") + text;
    return text;
  }

  void schema(uint64_t id, uint64_t type, uint64_t offset, const char *name) {
    log.define(sl_event_nvtx_schema_entry{STATIC_SCHEMA + id, type, offset, domain, 0, log.string(name), 0});
  }

  static std::string block_name(uint32_t block) {
    return "blocks." + std::to_string(block);
  }

  uint64_t allocate(uint64_t bytes) {
    const uint64_t address = next;
    next += bytes;
    main.allocator(SL_SEGMENT_ALLOC, address, bytes).allocator(SL_ALLOC, address, bytes);
    return address;
  }

  void release(uint64_t address, uint64_t bytes) {
    main.allocator(SL_FREE_REQUESTED, address, bytes).allocator(SL_FREE_COMPLETED, address, bytes);
    main.allocator(SL_SEGMENT_FREE, address, bytes);
  }

  void communicator(uint64_t id, uint32_t size, uint32_t own) {
    const uint64_t words[] = {id, size | (uint64_t)own << 32};
    main.range_push("ncclCommInitRank", 0, 0, "NCCL");
    payload(INIT_RANK, words);
    main.range_pop("NCCL");
  }

  template <size_t count> void payload(uint64_t id, const uint64_t (&words)[count]) {
    std::string bytes(reinterpret_cast<const char *>(words), sizeof words);
    main.append(sl_event_range_payload{STATIC_SCHEMA + id, (uint32_t)bytes.size(), domain}, bytes);
  }

  void setup() {
    at(fleet.start_ns + 100 * ms);
    communicator(world(), fleet.ranks, rank);
    const uint32_t per_stage = fleet.ranks / fleet.stages;
    if (fleet.stages > 1)
      communicator(stage(), per_stage, rank % per_stage);
    for (uint32_t block = 0; block < fleet.blocks; block++)
      main.tag(allocate(SHARD), "sharded_param", 2 + block, block_name(block) + ".weight");
  }

  uint64_t world() const {
    return 0x1000'0000'0000'0000 + fleet.start_ns / ms;
  }
  uint64_t stage() const {
    return world() + 1 + rank / (fleet.ranks / fleet.stages);
  }

  /* The call on the host and its kernel, which begins when this rank comes and ends when all have come. */
  void all_gather(uint64_t now, bool returns) {
    const uint64_t words[] = {fleet.stages > 1 ? stage() : world(), SHARD};
    at(now).range_push("ncclAllGather", 0, 0, "NCCL");
    payload(ALL_GATHER, words);
    if (!returns)
      return;
    const uint32_t correlation = ++calls;
    main.append(sl_event_launch{correlation, 0}).range_pop("NCCL");
    uint64_t begin = now + ms / 10, end = now + ms;
    for (const Fleet::Late &late : fleet.late) {
      begin += has(late.ranks, rank) ? late.ns : 0;
      end += late.ns;
    }
    log.thread(9)
        .at(end + ms + (uint64_t)clock_ns)
        .append(sl_event_kernel{begin + (uint64_t)clock_ns, end + (uint64_t)clock_ns,
                                log.string("_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE"),
                                correlation, 19, 0, 1});
  }

  /* The same for the same rank, step and block; a multiple of 512, as the allocator rounds. */
  uint64_t by_chance(uint32_t block, uint32_t step) const {
    uint64_t x = (((uint64_t)rank << 32 | step) * 31 + block + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
    const double share = (double)(x >> 40) / (1 << 23) - 1;
    return (uint64_t)(int64_t)(share * fleet.noise * (double)ACTIVATION / 512) * 512;
  }

  uint64_t activation(uint32_t block, uint32_t step) const {
    uint64_t bytes = ACTIVATION + by_chance(block, step);
    for (const Fleet::More &more : fleet.more)
      if (more.block == block && step >= more.from_step && has(more.ranks, rank))
        bytes += more.bytes;
    return bytes;
  }

  const Fleet::Death *death_in(uint32_t step) const {
    for (const Fleet::Death &death : fleet.deaths)
      if (death.step == step && has(death.ranks, rank))
        return &death;
    return nullptr;
  }

  /* Ends the log at block 2 of a step; after this nothing is written. */
  void die(const Fleet::Death &death, uint64_t now) {
    now += death.after_ns;
    switch (death.end) {
    case Fleet::End::refused:
      at(now).allocator(SL_OUT_OF_MEMORY, 100 * MiB, 4096 * MiB);
      at(now + 50 * ms).process_end();
      break;
    case Fleet::End::killed: at(now).range_mark("last"); break;
    case Fleet::End::waits:
      all_gather(now, false);
      at(now + 2000 * ms).append(sl_event_clock{});
      break;
    }
  }

  /* false: the log ends here. */
  bool run_step(uint32_t step) {
    const uint64_t begin = step_ns(step);
    const Fleet::Death *death = death_in(step);
    std::vector<uint64_t> activations(fleet.blocks), gradients(fleet.blocks);
    uint64_t now = begin;
    at(now).range_start(1000 + step, "step " + std::to_string(step), SL_KIND_step, step);
    at(now + ms / 2).range_push("Model", SL_KIND_forward, 1);
    for (uint32_t block = 0; block < fleet.blocks; block++) {
      now = begin + (2 + 5 * block) * ms;
      at(now).range_push(block_name(block), SL_KIND_forward, 2 + block);
      if (death && block == 2) {
        die(*death, now + ms / 4);
        return false;
      }
      main.range_push("FSDP::all_gather (" + block_name(block) + ")", SL_KIND_record_function);
      all_gather(now + ms / 4, true);
      main.range_pop();
      at(now + 2 * ms);
      activations[block] = allocate(activation(block, step));
      at(now + 4 * ms).range_pop();
    }
    at(begin + 30 * ms).range_pop();
    for (const Fleet::Leak &leak : fleet.leaks)
      if (step >= leak.from_step && has(leak.ranks, rank)) {
        allocate(leak.bytes);
      }
    at(begin + 32 * ms).range_push("backward", SL_KIND_backward, 0);
    for (uint32_t i = fleet.blocks; i-- > 0;) {
      now = begin + (33 + 5 * (fleet.blocks - 1 - i)) * ms;
      at(now).range_start(5000 + i, block_name(i), SL_KIND_backward, 2 + i);
      gradients[i] = allocate(SHARD);
      main.tag(gradients[i], "sharded_grad", 2 + i, block_name(i) + ".weight");
      at(now + 2 * ms);
      release(activations[i], activation(i, step));
      at(now + 4 * ms).range_end(5000 + i);
    }
    at(begin + 70 * ms).range_pop();
    at(begin + 72 * ms).range_push("AdamW.step", SL_KIND_optimizer_step, 1);
    for (uint32_t block = 0; step == 0 && block < fleet.blocks; block++)
      main.tag(allocate(STATE), "optstate", 2 + block, block_name(block) + ".weight");
    at(begin + 80 * ms).range_pop().range_end(1000 + step);
    at(begin + 85 * ms).range_push("zero_grad", SL_KIND_zero_grad);
    for (uint32_t block = 0; block < fleet.blocks; block++)
      release(gradients[block], SHARD);
    at(begin + 86 * ms).range_pop();
    return true;
  }

  const Fleet &fleet;
  const uint32_t rank, host;
  const int64_t clock_ns;
  LogBuilder log;
  LogBuilder::Thread &main;
  uint16_t domain = 0;
  uint32_t calls = 0;
  uint64_t next = 1ull << 40;
};

} // namespace

void write_fleet(const std::filesystem::path &directory, const Fleet &fleet) {
  for (uint32_t rank = 0; rank < fleet.ranks; rank++)
    if (!has(fleet.absent, rank))
      Rank(directory, fleet, rank).write();
}

FleetRanks fleet_ranks(const std::string &text) {
  FleetRanks ranks;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const uint32_t first = (uint32_t)std::stoul(part);
    const uint32_t last = dash == std::string::npos ? first : (uint32_t)std::stoul(part.substr(dash + 1));
    for (uint32_t rank = first; rank <= last; rank++)
      ranks.insert(rank);
  }
  return ranks;
}

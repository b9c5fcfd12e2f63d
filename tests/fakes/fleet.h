/*
 * Writes the logs of a job with hundreds of ranks that never ran: an FSDP training on hosts of so many GPUs, in which
 * chosen ranks differ from the others in a known way. What the questions of an on-call engineer are tested on.
 *
 *   Fleet fleet;
 *   fleet.ranks = 256;
 *   fleet.more.push_back({{137}, 2ull << 30, 2, 44});
 *   write_fleet(directory, fleet);
 */
#ifndef SHARDLEDGER_TESTS_FLEET_H
#define SHARDLEDGER_TESTS_FLEET_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using FleetRanks = std::set<uint32_t>;

struct Fleet {
  uint32_t ranks = 16, ranks_per_host = 8; /* rank r runs on host gpu-node-<r / ranks_per_host> */
  uint32_t steps = 8, blocks = 4;
  uint32_t stages = 1; /* of the pipeline: ranks / stages in a row make one, each with a communicator of its own */
  double noise = 0;    /* activations are larger or smaller by up to this share, by chance, each on its own */
  std::vector<std::pair<std::string, uint32_t>> mesh; /* dimensions of a DeviceMesh of all ranks, the outermost first */
  uint64_t start_ns = 1'700'000'000'000'000'000;
  std::map<std::string, std::string> infos; /* more facts that each process says of itself; "" takes one away */

  struct More { /* activations of a block are larger, from a step on */
    FleetRanks ranks;
    uint64_t bytes;
    uint32_t block, from_step;
  };
  struct Leak { /* each step from one on keeps as much more */
    FleetRanks ranks;
    uint64_t bytes;
    uint32_t from_step;
  };
  struct Late { /* begins each collective so much later */
    FleetRanks ranks;
    uint64_t ns;
  };
  enum class End {
    refused, /* a request in the forward of block 2 is refused, and the process ends in order */
    killed,  /* its log stops in the forward of block 2 */
    waits,   /* its log stops two seconds later, within the all-gather of block 2 */
  };
  struct Death {
    FleetRanks ranks;
    End end;
    uint32_t step;
    uint64_t after_ns; /* so much later than the others in this step */
  };
  std::vector<More> more;
  std::vector<Leak> leaks;
  std::vector<Late> late;
  std::vector<Death> deaths;
  FleetRanks absent;                     /* not recorded */
  std::map<uint32_t, int64_t> clocks_ns; /* host: what its clock is ahead */
};

/* One process directory a rank in directory, which is made. */
void write_fleet(const std::filesystem::path &directory, const Fleet &fleet);

/* "0-3,7"; throws std::invalid_argument. */
FleetRanks fleet_ranks(const std::string &text);

#endif

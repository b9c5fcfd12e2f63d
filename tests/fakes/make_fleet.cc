// make_fleet DIRECTORY [--name value]…: writes a made-up job with many ranks; see usage below, and fleet.h.
#include "fakes/fleet.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace {

const char usage[] = "usage: make_fleet DIRECTORY [OPTION VALUE]...\n"
                     "  --ranks N --per-host N --steps N --blocks N --stages N --start NS\n"
                     "  --noise PERCENT               activations differ by up to so much, by chance\n"
                     "  --mesh DIM:SIZE               a dimension of a DeviceMesh of all ranks, the outermost first\n"
                     "  --more RANKS:MIB:BLOCK:STEP   activations of the block are larger, from the step on\n"
                     "  --leak RANKS:MIB:STEP         each step from this one keeps as much more\n"
                     "  --late RANKS:US               begins each collective so much later\n"
                     "  --refused RANKS:STEP:US, --killed RANKS:STEP:US, --waits RANKS:STEP:US\n"
                     "                                how and when they end, so much later than others in that step\n"
                     "  --absent RANKS                not recorded\n"
                     "  --clock HOST:MS               what a host's clock is ahead; may be negative\n"
                     "  --info KEY:VALUE              a fact that each process says of itself\n"
                     "RANKS: 0-3,7\n";

std::vector<std::string> split(const std::string &text, size_t parts) {
  std::vector<std::string> found;
  size_t at = 0;
  while (found.size() + 1 < parts && text.find(':', at) != std::string::npos) {
    const size_t colon = text.find(':', at);
    found.push_back(text.substr(at, colon - at));
    at = colon + 1;
  }
  found.push_back(text.substr(at));
  if (found.size() != parts)
    throw std::invalid_argument(text);
  return found;
}

void take(Fleet &fleet, const std::string &name, const std::string &value) {
  const auto number = [](const std::string &text) { return std::stoull(text); };
  const auto death = [&](Fleet::End end) {
    const auto parts = split(value, 3);
    fleet.deaths.push_back({fleet_ranks(parts[0]), end, (uint32_t)number(parts[1]), number(parts[2]) * 1000});
  };
  if (name == "--noise")
    fleet.noise = std::stod(value) / 100;
  else if (name == "--ranks")
    fleet.ranks = (uint32_t)number(value);
  else if (name == "--per-host")
    fleet.ranks_per_host = (uint32_t)number(value);
  else if (name == "--steps")
    fleet.steps = (uint32_t)number(value);
  else if (name == "--blocks")
    fleet.blocks = (uint32_t)number(value);
  else if (name == "--stages")
    fleet.stages = (uint32_t)number(value);
  else if (name == "--start")
    fleet.start_ns = number(value);
  else if (name == "--more") {
    const auto parts = split(value, 4);
    fleet.more.push_back(
        {fleet_ranks(parts[0]), number(parts[1]) << 20, (uint32_t)number(parts[2]), (uint32_t)number(parts[3])});
  } else if (name == "--mesh") {
    const auto parts = split(value, 2);
    fleet.mesh.push_back({parts[0], (uint32_t)number(parts[1])});
  } else if (name == "--leak") {
    const auto parts = split(value, 3);
    fleet.leaks.push_back({fleet_ranks(parts[0]), number(parts[1]) << 20, (uint32_t)number(parts[2])});
  } else if (name == "--late") {
    const auto parts = split(value, 2);
    fleet.late.push_back({fleet_ranks(parts[0]), number(parts[1]) * 1000});
  } else if (name == "--refused")
    death(Fleet::End::refused);
  else if (name == "--killed")
    death(Fleet::End::killed);
  else if (name == "--waits")
    death(Fleet::End::waits);
  else if (name == "--absent")
    fleet.absent = fleet_ranks(value);
  else if (name == "--clock") {
    const auto parts = split(value, 2);
    fleet.clocks_ns[(uint32_t)number(parts[0])] = std::stoll(parts[1]) * 1'000'000;
  } else if (name == "--info") {
    const auto parts = split(value, 2);
    fleet.infos[parts[0]] = parts[1];
  } else
    throw std::invalid_argument(name);
}

} // namespace

int main(int argc, char **argv) {
  Fleet fleet;
  try {
    if (argc < 2 || argc % 2 || argv[1][0] == '-')
      throw std::invalid_argument("DIRECTORY");
    for (int i = 2; i < argc; i += 2)
      take(fleet, argv[i], argv[i + 1]);
    write_fleet(argv[1], fleet);
  } catch (const std::exception &e) {
    fprintf(stderr, "make_fleet: %s\n%s", e.what(), usage);
    return 2;
  }
  return 0;
}

/*
 * Plays the recorded log of a process again, as it grew: what the process had written at an instant is put where a
 * reader finds it, full segments sealed, others preallocated.
 *
 *   GrowingLog log(recorded / "vm-1-2", directory / "vm-1-2");
 *   log.grow(log.first_ns() + 1'000'000'000);
 */
#ifndef SHARDLEDGER_TESTS_GROWING_LOG_H
#define SHARDLEDGER_TESTS_GROWING_LOG_H

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

class GrowingLog {
public:
  GrowingLog(const std::filesystem::path &recorded, const std::filesystem::path &directory);

  /* What was written until then. Instants do not go back. */
  void grow(uint64_t until_ns);
  void grow_to_end() {
    grow(UINT64_MAX);
  }

  uint64_t first_ns() const {
    return first;
  }
  uint64_t last_ns() const {
    return last;
  }

private:
  struct Segment {
    std::string raw;             /* the whole file, at its full size */
    std::vector<size_t> ends;    /* of each record in it */
    std::vector<uint64_t> times; /* of each record; they do not go back */
    std::string frame;           /* in sealed.slogz; "": it never was there */
    uint64_t base_ns = 0;
    uint64_t next_base_ns = UINT64_MAX; /* of the thread's next segment */
    uint32_t number = 0;
    bool sealed = false;
  };
  std::filesystem::path directory;
  std::vector<Segment> segments;
  uint64_t first = UINT64_MAX, last = 0, grown = 0;
};

#endif

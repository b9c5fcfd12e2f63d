/*
 * A long run from a recorded one: steps first … last of a process's log are written again and again, as if training had
 * gone on, with new times, step numbers, sequence numbers and correlation ids. Addresses stay as they are, so the steps
 * must leave PyTorch's memory as they found it; that is checked.
 *
 * Memory does not grow with the length: full segments are compressed and appended, as the plugin does.
 */
#ifndef SHARDLEDGER_TESTS_REPEATED_RUN_H
#define SHARDLEDGER_TESTS_REPEATED_RUN_H

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

struct RepeatedRun {
  std::filesystem::path from, to; /* process directories; to is made */
  int64_t first = 0, last = 0;    /* steps that are repeated */
  uint64_t times = 1;             /* in all: 1 writes the run as it was recorded */
  /* More than 1: so many ranks, in to-0, to-1 … All do the same, and share one file on disk but for their rank. */
  uint32_t ranks = 1;
  /* Whether what the recorded process did after the last repeated step follows; if not, its log just stops. */
  bool ends = true;
  /* Bytes of an allocation of one round (0, 1, …), NULL: as they were. For steps that stand out. */
  std::function<uint64_t(uint64_t round, uint64_t bytes)> bytes = nullptr;
};

/* Returns the number of events of a rank, or 0 with a sentence in error. */
uint64_t repeat_steps(const RepeatedRun &run, std::string &error);

#endif

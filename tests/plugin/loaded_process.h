/*
 * A process with the whole plugin under load: allocator events, NVTX ranges, driver calls and new names from four
 * threads at once, which go on until the process ends. For tests of its end.
 */
#ifndef SHARDLEDGER_TESTS_LOADED_PROCESS_H
#define SHARDLEDGER_TESTS_LOADED_PROCESS_H

#include "plugin/recorded.h"

#include <atomic>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

class LoadedProcess {
public:
  enum { ALLOCATOR, RANGES, DRIVER, NAMES, THREADS };

  /* Starts it; body runs on its main thread when all threads are at work, and is to end the process. */
  explicit LoadedProcess(const std::function<void()> &body);
  /* Kills it, if it still runs, and removes its log. */
  ~LoadedProcess();
  LoadedProcess(const LoadedProcess &) = delete;

  void kill();
  /* Waits for its end: the status as waitpid gives it, or -1 and a failure when it takes longer than two minutes. */
  int wait();
  /* Seconds from the start of body to the end that wait saw. */
  double seconds() const;

  /* How many records each thread had made. */
  uint64_t done(int thread) const;
  /* What is read back, and the numbers that each thread recorded, in the order of its records. */
  Recording recording() const;
  static std::vector<std::vector<uint64_t>> numbers(const Recording &log);

private:
  struct Shared {
    std::atomic<uint64_t> done[THREADS];
    std::atomic<double> body_at;
  };
  Shared *shared;
  pid_t pid = 0;
  double ended_at = 0;
  char root[64] = "/tmp/shardledger-test-XXXXXX";
};

#endif

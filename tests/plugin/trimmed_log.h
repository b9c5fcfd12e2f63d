// What the tests of keep-last share: a log that grows fast, and `shardledger trim` beside the process.
#pragma once

#include "plugin/marks.h"
#include "plugin/shardledger.h"

extern "C" {
#include "plugin/log/event_log.h"
#include "plugin/log/sealed_files.h"
}

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace trimmed_log {

namespace fs = std::filesystem;

constexpr uint64_t MIB = 1 << 20, CAP = 32 * MIB, SEGMENT = 64 * MIB, BASE = 0x7f0000000000;
constexpr int STEPS_MAX = 100'000;

/* Makes the log grow fast; it does not compress, or by half with 4 bits of a byte. Was it recorded? */
inline bool noise(std::minstd_rand &random, uint8_t bits = 0xff) {
  uint8_t bytes[1024];
  for (uint8_t &byte : bytes)
    byte = (uint8_t)(random() >> 8) & bits;
  const sl_event_range_payload payload = {1, sizeof(bytes), 1};
  return sl_log_append(SL_EVENT_range_payload, &payload, sizeof(payload), bytes, sizeof(bytes));
}

/* `shardledger trim --follow`, a process of its own. */
class Trimmer {
public:
  ~Trimmer() {
    end(SIGTERM);
  }
  void start(const std::string &root) {
    const std::string command = SL_BUILD_DIR "/bin/shardledger";
    const char *arguments[] = {command.c_str(), "trim", "--follow", root.c_str(), nullptr};
    ASSERT_EQ(posix_spawn(&pid, command.c_str(), nullptr, nullptr, (char *const *)arguments, environ), 0);
  }
  /* How it ended, as from waitpid. */
  int end(int signal) {
    int status = -1;
    if (pid > 0) {
      kill(pid, signal);
      waitpid(pid, &status, 0);
    }
    pid = 0;
    return status;
  }

private:
  pid_t pid = 0;
};

/* 0 where files came or went meanwhile: then the sum is of no instant. */
inline uint64_t directory_bytes(const fs::path &directory) {
  std::map<fs::path, uint64_t> files[2];
  for (auto &look : files)
    for (const auto &file : fs::directory_iterator(directory))
      look[file.path()] = file_bytes(file);
  uint64_t bytes = 0;
  for (const auto &file : files[0])
    bytes += file.second;
  return files[0] == files[1] ? bytes : 0;
}

/* Whether a busy machine leaves helper thread or trimmer no time: then events would be lost, which is another test's.
 */
inline bool is_behind(uint64_t limit) {
  int ready = 0, raw = 0;
  for (const auto &file : fs::directory_iterator(sl_log_directory()))
    if (file.path().extension() == SL_SEGMENT_SUFFIX) {
      raw++;
      ready += is_ready(file.path());
    }
  const uint64_t bytes = directory_bytes(sl_log_directory());
  return ready < 5 || raw > 72 || bytes == 0 || bytes > limit - 3 * MIB; /* of which up to 64 are ready ones */
}

} // namespace trimmed_log

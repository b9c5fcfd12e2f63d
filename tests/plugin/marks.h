/* The simplest event there is, for tests of what becomes of events. */
#ifndef SHARDLEDGER_TESTS_MARKS_H
#define SHARDLEDGER_TESTS_MARKS_H

#include "plugin/format/log_format.h"
#include "plugin/recorded.h"

extern "C" {
#include "plugin/log/event_log.h"
}

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

/* Whether it was recorded. */
inline bool mark(uint64_t value, uint32_t name = 0) {
  const sl_event_range_mark event = {name, 0, 0, value};
  return sl_log_append(SL_EVENT_range_mark, &event, sizeof(event), nullptr, 0);
}

/* 0 of one that the helper thread has sealed or removed meanwhile. */
inline uint64_t file_bytes(const std::filesystem::directory_entry &file) {
  std::error_code gone;
  const uint64_t bytes = file.file_size(gone);
  return gone ? 0 : bytes;
}

/* Has a segment that no thread has taken yet: its header has no check. */
inline bool is_ready(const std::filesystem::path &file) {
  sl_segment_header header = {};
  std::ifstream(file, std::ios::binary).read((char *)&header, sizeof(header));
  return header.magic == SL_SEGMENT_MAGIC && header.check == 0;
}

inline int ready_segments() {
  int ready = 0;
  for (const auto &file : std::filesystem::directory_iterator(sl_log_directory()))
    ready += file.path().extension() == SL_SEGMENT_SUFFIX && is_ready(file.path());
  return ready;
}

/* Until the helper thread has made segments, so that the next burst finds some; on a busy machine it may take a while.
 */
inline void pause_for_helper() {
  for (int i = 0; i < 60'000 && sl_log_active() && ready_segments() < 5; i++)
    usleep(1'000);
}

inline std::vector<std::string> gap_reasons(const Recording &recording) {
  std::vector<std::string> out;
  for (const auto &gap : ALL(recording, gap))
    out.push_back(recording.name(gap.reason));
  return out;
}

#endif

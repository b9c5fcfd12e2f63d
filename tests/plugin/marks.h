/* The simplest event there is, for tests of what becomes of events. */
#ifndef SHARDLEDGER_TESTS_MARKS_H
#define SHARDLEDGER_TESTS_MARKS_H

#include "plugin/recorded.h"

extern "C" {
#include "plugin/log/event_log.h"
}

#include <cstdint>
#include <string>
#include <unistd.h>
#include <vector>

/* Whether it was recorded. */
inline bool mark(uint64_t value, uint32_t name = 0) {
  const sl_event_range_mark event = {name, 0, 0, value};
  return sl_log_append(SL_EVENT_range_mark, &event, sizeof(event), nullptr, 0);
}

/* Until the helper thread has had time to make segments, so that the next burst finds some. */
inline void pause_for_helper() {
  usleep(20'000);
}

inline std::vector<std::string> gap_reasons(const Recording &recording) {
  std::vector<std::string> out;
  for (const auto &gap : ALL(recording, gap))
    out.push_back(recording.name(gap.reason));
  return out;
}

#endif

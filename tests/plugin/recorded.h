/*
 * Runs code with the real plugin in a process of its own and reads back what it recorded: the plugin attaches once per
 * process and for good.
 */
#ifndef SHARDLEDGER_TESTS_RECORDED_H
#define SHARDLEDGER_TESTS_RECORDED_H

#include "plugin/format/events.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

using Environment = std::map<std::string, std::string>;

struct Event {
  uint8_t type;
  uint32_t thread;
  uint32_t tid;
  uint64_t time_ns;
  std::vector<uint8_t> payload;

  template <class Fields> Fields as() const {
    Fields fields;
    memcpy(&fields, payload.data(), sizeof(fields));
    return fields;
  }
  std::string tail(size_t fields, size_t length) const {
    return std::string(reinterpret_cast<const char *>(payload.data()) + fields, length);
  }
};

struct Recording {
  int status = -1;           /* of the process, as from waitpid; 0: it ended well and no expectation in it failed */
  std::vector<Event> events; /* all threads, definitions first; empty when it left no log */
  std::map<uint32_t, std::string> names;

  std::string name(uint32_t id) const;
  std::vector<Event> of(sl_event_type type) const;
  template <class Fields> std::vector<Fields> all(sl_event_type type) const {
    std::vector<Fields> out;
    for (const Event &event : of(type))
      out.push_back(event.as<Fields>());
    return out;
  }
  /* "state: reason" of the last source_state of a source; "" without one. */
  std::string state(const std::string &source) const;
  /* Events that were made and are not there, as the gaps count them. */
  uint64_t lost() const;
};

#define ALL(recording, type) (recording).all<sl_event_##type>(SL_EVENT_##type)

/* Runs body in a forked child, with SHARDLEDGER_DIR set to a fresh directory and the variables given. */
Recording record(const Environment &environment, const std::function<void()> &body);

/* What a process that was started elsewhere has recorded in root, the SHARDLEDGER_DIR it had. */
Recording read_recording(const std::string &root);

/* What this process has recorded in its SHARDLEDGER_DIR by now, as far as it can be read: its files are being written.
 */
Recording recorded_so_far();

/* Waits until it is so. False: it took a minute. */
bool eventually(const std::function<bool()> &condition);

/* Whether the log in directory, which may still be written, has a gap of that reason by now. */
bool has_gap(const std::string &directory, const std::string &reason);

/* The same as record for a program. */
Recording record_program(const Environment &environment, const std::vector<std::string> &command);

#endif

/*
 * Writes the log of a process that never ran, with the times, threads and order that a test chooses.
 *
 *   LogBuilder log(directory / "host-1-1");
 *   log.info("rank", "0").module(1, 0, "layers.0", "Block");
 *   log.thread(1).at(1'000).range_push("forward", SL_KIND_forward, 1).allocator(SL_ALLOC, 0x1000, 512).range_pop();
 *   log.finish();
 *
 * The plugin's own writer stamps the real clock and real threads, so this encodes segments itself, by log_format.h;
 * tests/storage/log_reader_test.cc holds it against the reader. Everything is written by finish(), or the destructor.
 */
#ifndef SHARDLEDGER_TESTS_LOG_BUILDER_H
#define SHARDLEDGER_TESTS_LOG_BUILDER_H

#include "nvtx_ranges/kinds.h"
#include "plugin/format/events.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

/* The enum value of an event's struct. */
template <class Event> struct EventType;
#define EVENT_BEGIN(number, name, meaning)                                                                             \
  template <> struct EventType<sl_event_##name> { static constexpr uint8_t value = number; };
#define FIELD(type, name, kind, meaning)
#define TAIL(length_field, kind, meaning)
#define EVENT_END(name)
#include "plugin/format/events.def"
#undef EVENT_BEGIN
#undef FIELD
#undef TAIL
#undef EVENT_END

class LogBuilder {
public:
  class Thread {
  public:
    /* Time of what follows; it stays until the next at(). May go back. */
    Thread &at(uint64_t time_ns);

    /* Any event: its struct, and its tail where it has one. */
    template <class Event> Thread &append(const Event &event, const std::string &tail = "") {
      return append_bytes(EventType<Event>::value, &event, sizeof(event), tail);
    }
    Thread &append_bytes(uint8_t type, const void *fields, size_t bytes, const std::string &tail);

    Thread &range_push(const std::string &name, uint16_t category = SL_KIND_none, uint64_t value = 0,
                       const std::string &domain = SL_NVTX_DOMAIN);
    Thread &range_pop(const std::string &domain = SL_NVTX_DOMAIN);
    Thread &range_start(uint64_t id, const std::string &name, uint16_t category = SL_KIND_none, uint64_t value = 0,
                        const std::string &domain = SL_NVTX_DOMAIN);
    Thread &range_end(uint64_t id);
    Thread &range_mark(const std::string &name, uint16_t category = SL_KIND_none, uint64_t value = 0,
                       const std::string &domain = SL_NVTX_DOMAIN);
    /* The sequence number is counted per device, in the order of the calls. */
    Thread &allocator(uint8_t action, uint64_t address, uint64_t bytes, uint32_t device = 0, uint64_t stream = 0,
                      uint64_t pool_owner = 0, uint64_t pool_id = 0);
    Thread &tag(uint64_t address, const std::string &category, uint32_t module = 0, const std::string &name = "",
                uint32_t device = 0);
    Thread &gap(const std::string &source, const std::string &reason, uint64_t lost);
    Thread &process_end();

    /* What follows goes into a new segment. */
    Thread &cut();

  private:
    friend class LogBuilder;
    LogBuilder *log = nullptr;
    uint32_t ordinal = 0, tid = 0;
    uint64_t now = 0, base = 0;
    std::vector<std::string> segments; /* records of each, without the header */
    std::vector<uint64_t> bases;
    std::map<std::string, uint32_t> depths; /* by domain */
  };

  /* The process's own directory; made, with its parents. start_ns is the time of definitions, too. */
  explicit LogBuilder(const std::filesystem::path &directory, uint64_t start_ns = 1'000'000'000'000'000'000);
  ~LogBuilder();
  LogBuilder(const LogBuilder &) = delete;

  /* ordinal from 1; the kernel thread id is 1000 + ordinal. */
  Thread &thread(uint32_t ordinal);
  /* Ordinal 0, for definition events that have no helper here. */
  Thread &definitions() {
    return thread(0);
  }

  /* Ids: made, and defined in the log, at first use. */
  uint32_t string(const std::string &text);
  uint16_t domain(const std::string &name); /* "" is NVTX's default domain: 0 */
  uint16_t place(uint32_t device, uint64_t stream = 0, uint64_t pool_owner = 0, uint64_t pool_id = 0);

  template <class Event> LogBuilder &define(const Event &event, const std::string &tail = "") {
    definitions().append(event, tail);
    return *this;
  }
  LogBuilder &info(const std::string &key, const std::string &value);
  LogBuilder &module(uint32_t id, uint32_t parent, const std::string &fqn, const std::string &class_name,
                     uint32_t flags = 0, uint32_t depth = 0, uint64_t parameter_bytes = 0, uint64_t buffer_bytes = 0);
  LogBuilder &device(uint32_t id, const std::string &name, uint64_t total_bytes, const std::string &uuid = "");
  LogBuilder &source_state(const std::string &source, const std::string &state, const std::string &reason = "");

  /* Number that the next allocator event of the device gets; setting it leaves a hole. */
  uint32_t &sequence(uint32_t device) {
    return sequences[device];
  }

  /* Tells this process's segments from those of others. */
  uint64_t process_key = 1;
  /* Of the segments, and of the frames around them. */
  uint32_t segment_version = 1, frame_version = 1;

  enum class Files { raw, sealed, both };
  /* Writes everything; nothing may be added afterwards. both: as after a kill between sealing and unlinking. */
  void finish(Files files = Files::raw);

private:
  std::filesystem::path directory;
  uint64_t start_ns;
  bool finished = false;
  std::map<uint32_t, Thread> threads;
  std::map<std::string, uint32_t> strings;
  std::map<std::string, uint16_t> domains;
  std::map<std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>, uint16_t> places;
  std::map<uint32_t, uint32_t> sequences;
};

#endif

#include "fakes/repeated_run.h"

#include "nvtx_ranges/kinds.h"
#include "plugin/format/events.h"
#include "plugin/format/log_format.h"

extern "C" {
#include "storage/log/event_table.h"
#include "storage/log/log_reader.h"
}

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <unordered_map>
#include <vector>

namespace {

struct Event {
  uint8_t type;
  uint32_t thread, tid;
  uint64_t time_ns;
  std::string payload;

  template <class T> T &as() {
    return *(T *)payload.data();
  }
  template <class T> const T &as() const {
    return *(const T *)payload.data();
  }
};

bool is_device_record(uint8_t type) {
  return type == SL_EVENT_kernel || type == SL_EVENT_memory_copy || type == SL_EVENT_memory_set ||
         type == SL_EVENT_activity_memory;
}

uint32_t &correlation(Event &event) {
  switch (event.type) {
  case SL_EVENT_kernel: return event.as<sl_event_kernel>().correlation;
  case SL_EVENT_memory_copy: return event.as<sl_event_memory_copy>().correlation;
  case SL_EVENT_memory_set: return event.as<sl_event_memory_set>().correlation;
  case SL_EVENT_activity_memory: return event.as<sl_event_activity_memory>().correlation;
  default: return event.as<sl_event_launch>().correlation;
  }
}

/* Appends records to the segments of one process. */
class Writer {
public:
  explicit Writer(const std::filesystem::path &directory)
      : sealed((std::filesystem::create_directories(directory), directory / SL_SEALED_NAME), std::ios::binary) {}

  void add(const Event &event) {
    Thread &thread = threads[event.thread];
    if (event.type == SL_EVENT_string)
      strings[event.payload.substr(sizeof(sl_event_string), event.as<sl_event_string>().length)] =
          event.as<sl_event_string>().id;
    if (thread.records.size() + event.payload.size() + 64 > SL_SEGMENT_BYTES - sizeof(sl_segment_header))
      seal(event.thread);
    if (thread.records.empty()) {
      thread.tid = event.tid;
      thread.first = thread.base = event.time_ns;
    }
    if (event.time_ns < thread.base || event.time_ns - thread.base > UINT32_MAX) {
      thread.base = event.time_ns;
      sl_event_time_base base = {event.time_ns};
      record(thread, SL_EVENT_time_base, std::string((const char *)&base, sizeof(base)), 0);
    }
    record(thread, event.type, event.payload, (uint32_t)(event.time_ns - thread.base));
    count++;
  }

  void finish() {
    for (auto &thread : threads)
      seal(thread.first);
  }

  /* What this rank alone says: a raw segment that goes on with the definitions. After finish(). */
  void add_definitions(const std::filesystem::path &directory, const std::map<std::string, std::string> &facts) {
    std::string records;
    uint32_t last = 0;
    for (const auto &string : strings)
      last = std::max(last, string.second);
    for (const auto &[key, value] : facts) {
      sl_event_string name = {++last, (uint32_t)value.size()};
      sl_event_info info = {strings.at(key), name.id};
      std::string payload = std::string((const char *)&name, sizeof(name)) + value;
      payload.resize((payload.size() + 7) / 8 * 8);
      checked_record(records, SL_EVENT_string, payload);
      checked_record(records, SL_EVENT_info, std::string((const char *)&info, sizeof(info)));
    }
    const sl_segment_header header = segment_header(0);
    char name[32];
    snprintf(name, sizeof(name), "%08x" SL_SEGMENT_SUFFIX, header.number);
    std::ofstream(directory / name, std::ios::binary).write((const char *)&header, sizeof(header)) << records;
  }

  uint64_t count = 0;

private:
  struct Thread {
    std::string records;
    uint64_t first = 0, base = 0;
    uint32_t tid = 0, sequence = 0;
  };

  static void record(Thread &thread, uint8_t type, const std::string &payload, uint32_t delta) {
    sl_record_header header = {type, (uint8_t)(1 + payload.size() / 8), 0, delta};
    thread.records.append((const char *)&header, sizeof(header)).append(payload);
  }

  static void checked_record(std::string &records, uint8_t type, const std::string &payload) {
    sl_record_header header = {type, (uint8_t)(1 + payload.size() / 8), 0, 0};
    header.check = XXH3_64bits_withSeed(payload.data(), payload.size(), (uint64_t)header.type | header.words << 8);
    records.append((const char *)&header, sizeof(header)).append(payload);
  }

  sl_segment_header segment_header(uint32_t ordinal) const {
    const Thread &thread = threads.at(ordinal);
    sl_segment_header header = {};
    header.magic = SL_SEGMENT_MAGIC;
    header.version = SL_LOG_VERSION;
    header.number = number;
    header.bytes = SL_SEGMENT_BYTES;
    header.thread = ordinal;
    header.sequence = thread.sequence;
    header.tid = thread.tid;
    header.base_ns = thread.first;
    header.process_key = 1;
    header.check = XXH3_64bits(&header, offsetof(sl_segment_header, check));
    return header;
  }

  void seal(uint32_t ordinal) {
    Thread &thread = threads[ordinal];
    if (thread.records.empty())
      return;
    const sl_segment_header header = segment_header(ordinal);
    thread.sequence++;
    std::string compressed(ZSTD_compressBound(thread.records.size()), '\0');
    compressed.resize(
        ZSTD_compress(&compressed[0], compressed.size(), thread.records.data(), thread.records.size(), 1));
    sl_frame_header frame = {};
    frame.magic = SL_FRAME_MAGIC;
    frame.version = SL_LOG_VERSION;
    frame.number = number++;
    frame.raw_bytes = (uint32_t)thread.records.size();
    frame.compressed_bytes = (uint32_t)compressed.size();
    frame.check = XXH3_64bits_withSeed(compressed.data(), compressed.size(),
                                       XXH3_64bits(&frame, offsetof(sl_frame_header, check)));
    sealed.write((const char *)&frame, sizeof(frame)).write((const char *)&header, sizeof(header)) << compressed;
    thread.records.clear();
  }

  std::ofstream sealed;
  std::map<uint32_t, Thread> threads;
  std::map<std::string, uint32_t> strings; /* their ids */
  uint32_t number = 0;
};

struct Recorded {
  std::vector<Event> events;
  std::map<int64_t, size_t> step_ends; /* step → index behind its end */
};

bool read(const std::filesystem::path &directory, Recorded &out, std::string &error) {
  sl_error reason = {};
  sl_log *log = nullptr;
  sl_event event;
  uint32_t domain = 0;
  std::unordered_map<uint64_t, int64_t> open;
  int r = sl_log_open(directory.c_str(), &log, &reason);
  while (r == 0 && (r = sl_log_next(log, &event, &reason)) > 0) {
    r = 0;
    if (event.type == SL_EVENT_time_base)
      continue;
    out.events.push_back(
        {event.type, event.thread, event.tid, event.time_ns, std::string((const char *)event.payload, event.bytes)});
    const Event &copy = out.events.back();
    if (copy.type == SL_EVENT_nvtx_domain &&
        strcmp(sl_log_string(log, copy.as<sl_event_nvtx_domain>().name), SL_NVTX_DOMAIN) == 0)
      domain = copy.as<sl_event_nvtx_domain>().id;
    if (copy.type == SL_EVENT_range_start && copy.as<sl_event_range_start>().domain == domain &&
        copy.as<sl_event_range_start>().category == SL_KIND_step)
      open[copy.as<sl_event_range_start>().id] = (int64_t)copy.as<sl_event_range_start>().value;
    if (copy.type == SL_EVENT_range_end && open.count(copy.as<sl_event_range_end>().id))
      out.step_ends[open[copy.as<sl_event_range_end>().id]] = out.events.size();
  }
  log = sl_log_close(log);
  error = reason.text;
  return r == 0;
}

/* PyTorch's memory: address → bytes of segments (those first) and of live blocks. */
std::map<std::pair<bool, uint64_t>, uint64_t> memory(const std::vector<Event> &events, size_t until) {
  std::map<std::pair<bool, uint64_t>, uint64_t> found;
  for (size_t i = 0; i < until; i++)
    if (events[i].type == SL_EVENT_allocator) {
      const auto &e = events[i].as<sl_event_allocator>();
      bool of_block = e.action == SL_ALLOC || e.action == SL_FREE_COMPLETED;
      if (e.action == SL_ALLOC || e.action == SL_SEGMENT_ALLOC || e.action == SL_SEGMENT_MAP)
        found[{of_block, e.address}] = e.bytes;
      if (e.action == SL_FREE_COMPLETED || e.action == SL_SEGMENT_FREE || e.action == SL_SEGMENT_UNMAP)
        found.erase({of_block, e.address});
    }
  return found;
}

class Repeater {
public:
  Repeater(const RepeatedRun &run, Recorded &recorded)
      : run(run), recorded(recorded), writer(run.ranks > 1 ? rank_directory(0) : run.to) {}

  uint64_t write() {
    std::vector<Event> &events = recorded.events;
    size_t begin = recorded.step_ends[run.first - 1], end = recorded.step_ends[run.last];
    uint64_t begin_ns = events[begin - 1].time_ns, end_ns = events[end - 1].time_ns;
    std::unordered_map<uint32_t, size_t> launches;
    uint32_t low = UINT32_MAX, high = 0;
    for (size_t i = 0; i < events.size(); i++)
      if (events[i].type == SL_EVENT_launch || is_device_record(events[i].type)) {
        low = std::min(low, correlation(events[i]));
        high = std::max(high, correlation(events[i]));
        if (events[i].type == SL_EVENT_launch)
          launches[correlation(events[i])] = i;
      }
    /* Device records come late: they belong to the round that launched them. */
    std::vector<size_t> before, round, after;
    for (size_t i = 0; i < events.size(); i++) {
      bool on_device = is_device_record(events[i].type);
      auto launch = on_device ? launches.find(correlation(events[i])) : launches.end();
      size_t position = launch != launches.end() ? launch->second : i;
      uint64_t starts_ns = on_device ? events[i].as<sl_event_memory_copy>().start_ns : 0;
      if (events[i].type == SL_EVENT_activity_memory)
        starts_ns = events[i].as<sl_event_activity_memory>().at_ns;
      bool by_time = on_device && launch == launches.end();
      bool is_before = by_time ? starts_ns <= begin_ns : position < begin;
      bool is_after = by_time ? starts_ns > end_ns : position >= end;
      (is_before ? before : is_after ? after : round).push_back(i);
    }
    correlations = high >= low ? high - low + 1 : 0;
    period_ns = end_ns - begin_ns;
    steps = run.last - run.first + 1;
    for (size_t i : before)
      emit(events[i], 0, false);
    for (uint64_t n = 0; n < run.times; n++)
      for (size_t i : round)
        emit(events[i], n, true);
    for (size_t i : after)
      if (run.ends)
        emit(events[i], run.times - 1, false);
    writer.finish();
    for (uint32_t rank = 0; run.ranks > 1 && rank < run.ranks; rank++) {
      if (rank > 0) {
        std::filesystem::create_directories(rank_directory(rank));
        std::filesystem::create_hard_link(rank_directory(0) / SL_SEALED_NAME, rank_directory(rank) / SL_SEALED_NAME);
      }
      writer.add_definitions(rank_directory(rank),
                             {{"rank", std::to_string(rank)}, {"world_size", std::to_string(run.ranks)}});
    }
    return writer.count;
  }

private:
  std::filesystem::path rank_directory(uint32_t rank) const {
    return run.to.string() + "-" + std::to_string(rank);
  }

  void emit(Event event, uint64_t round, bool repeated) {
    uint64_t shift = round * period_ns;
    if (event.thread == 0) { /* a definition: it says nothing about the time */
      if (round == 0)
        writer.add(event);
      return;
    }
    const struct sl_event_layout *layout = sl_event_layout(event.type);
    for (int i = 0; i < layout->field_count; i++)
      if (layout->fields[i].kind == SL_FIELD_time) {
        uint64_t at;
        memcpy(&at, &event.payload[layout->fields[i].offset], sizeof(at));
        at += at ? shift : 0;
        memcpy(&event.payload[layout->fields[i].offset], &at, sizeof(at));
      }
    event.time_ns += shift;
    if (event.type == SL_EVENT_launch || is_device_record(event.type))
      correlation(event) += (uint32_t)(round * correlations);
    if (event.type == SL_EVENT_range_start && event.as<sl_event_range_start>().category == SL_KIND_step)
      event.as<sl_event_range_start>().value += round * (uint64_t)steps;
    if (event.type == SL_EVENT_allocator) {
      auto &e = event.as<sl_event_allocator>();
      e.sequence = sequence++;
      if (run.bytes && repeated && e.action != SL_SEGMENT_ALLOC && e.action != SL_SEGMENT_FREE)
        e.bytes = run.bytes(round, e.bytes);
    }
    if (event.type == SL_EVENT_allocator_stats)
      event.as<sl_event_allocator_stats>().sequence = sequence;
    writer.add(event);
  }

  const RepeatedRun &run;
  Recorded &recorded;
  Writer writer;
  uint64_t correlations = 0, period_ns = 0;
  int64_t steps = 0;
  uint32_t sequence = 0;
};

} // namespace

uint64_t repeat_steps(const RepeatedRun &run, std::string &error) {
  Recorded recorded;
  if (!read(run.from, recorded, error))
    return 0;
  if (!recorded.step_ends.count(run.first - 1) || !recorded.step_ends.count(run.last) || run.last < run.first) {
    error = "the log has no such steps, or nothing before them";
    return 0;
  }
  if (memory(recorded.events, recorded.step_ends[run.first - 1]) !=
      memory(recorded.events, recorded.step_ends[run.last])) {
    error = "the steps leave other memory alive than they found";
    return 0;
  }
  return Repeater(run, recorded).write();
}

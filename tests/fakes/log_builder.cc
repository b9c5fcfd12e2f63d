#include "fakes/log_builder.h"

#include "plugin/format/log_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

using Thread = LogBuilder::Thread;

Thread &Thread::at(uint64_t time_ns) {
  now = time_ns;
  return *this;
}

Thread &Thread::cut() {
  segments.emplace_back();
  bases.push_back(base = now);
  return *this;
}

Thread &Thread::append_bytes(uint8_t type, const void *fields, size_t bytes, const std::string &tail) {
  size_t payload = bytes + (tail.size() + 7) / 8 * 8;
  if (segments.empty() || segments.back().size() + payload + 64 > SL_SEGMENT_BYTES - sizeof(sl_segment_header))
    cut();
  if (now - base > UINT32_MAX) {
    base = now;
    append(sl_event_time_base{now});
  }
  std::string record(8 + payload, '\0');
  if (bytes)
    memcpy(&record[8], fields, bytes);
  memcpy(&record[8 + bytes], tail.data(), tail.size());
  uint64_t words = record.size() / 8, delta = now - base;
  uint64_t check = XXH3_64bits_withSeed(&record[8], payload, type | words << 8 | delta << 16) & 0xffff;
  uint64_t commit = type | words << 8 | check << 16 | delta << 32;
  memcpy(&record[0], &commit, sizeof(commit));
  segments.back() += record;
  return *this;
}

Thread &Thread::range_push(const std::string &name, uint16_t category, uint64_t value, const std::string &domain) {
  depths[domain]++;
  return append(sl_event_range_push{log->string(name), log->domain(domain), category, value});
}

Thread &Thread::range_pop(const std::string &domain) {
  uint32_t &depth = depths[domain];
  depth -= depth > 0;
  return append(sl_event_range_pop{log->domain(domain), 0, depth});
}

Thread &Thread::range_start(uint64_t id, const std::string &name, uint16_t category, uint64_t value,
                            const std::string &domain) {
  return append(sl_event_range_start{id, log->string(name), log->domain(domain), category, value});
}

Thread &Thread::range_end(uint64_t id) {
  return append(sl_event_range_end{id});
}

Thread &Thread::range_mark(const std::string &name, uint16_t category, uint64_t value, const std::string &domain) {
  return append(sl_event_range_mark{log->string(name), log->domain(domain), category, value});
}

Thread &Thread::allocator(uint8_t action, uint64_t address, uint64_t bytes, uint32_t device, uint64_t stream,
                          uint64_t pool_owner, uint64_t pool_id) {
  uint16_t place = log->place(device, stream, pool_owner, pool_id);
  return append(sl_event_allocator{address, bytes, log->sequence(device)++, place, action, 0});
}

Thread &Thread::tag(uint64_t address, const std::string &category, uint32_t module, const std::string &name,
                    uint32_t device) {
  return append(sl_event_tag{address, log->string(category), module, log->string(name), device});
}

Thread &Thread::gap(const std::string &source, const std::string &reason, uint64_t lost) {
  return append(sl_event_gap{log->string(source), log->string(reason), lost});
}

Thread &Thread::process_end() {
  return append(sl_event_process_end{now});
}

LogBuilder::LogBuilder(const std::filesystem::path &directory, uint64_t start_ns)
    : directory(directory), start_ns(start_ns) {
  std::filesystem::create_directories(directory);
}

LogBuilder::~LogBuilder() {
  if (!finished)
    finish();
}

Thread &LogBuilder::thread(uint32_t ordinal) {
  auto [at, is_new] = threads.try_emplace(ordinal);
  if (is_new) {
    at->second.log = this;
    at->second.ordinal = ordinal;
    at->second.tid = ordinal ? 1000 + ordinal : 0;
    at->second.now = start_ns;
  }
  return at->second;
}

uint32_t LogBuilder::string(const std::string &text) {
  if (text.empty())
    return 0;
  auto [at, is_new] = strings.try_emplace(text, (uint32_t)strings.size() + 1);
  if (is_new)
    define(sl_event_string{at->second, (uint32_t)text.size()}, text);
  return at->second;
}

uint16_t LogBuilder::domain(const std::string &name) {
  if (name.empty())
    return 0;
  auto [at, is_new] = domains.try_emplace(name, (uint16_t)(domains.size() + 1));
  if (is_new)
    define(sl_event_nvtx_domain{at->second, string(name)});
  return at->second;
}

uint16_t LogBuilder::place(uint32_t device, uint64_t stream, uint64_t pool_owner, uint64_t pool_id) {
  auto [at, is_new] =
      places.try_emplace(std::make_tuple(device, stream, pool_owner, pool_id), (uint16_t)(places.size() + 1));
  if (is_new)
    define(sl_event_allocator_place{at->second, device, stream, pool_owner, pool_id});
  return at->second;
}

LogBuilder &LogBuilder::info(const std::string &key, const std::string &value) {
  const uint32_t key_id = string(key), value_id = string(value);
  return define(sl_event_info{key_id, value_id});
}

LogBuilder &LogBuilder::module(uint32_t id, uint32_t parent, const std::string &fqn, const std::string &class_name,
                               uint32_t flags, uint32_t depth, uint64_t parameter_bytes, uint64_t buffer_bytes) {
  const uint32_t fqn_id = string(fqn), class_id = string(class_name);
  return define(sl_event_module{id, parent, fqn_id, class_id, flags, depth, parameter_bytes, buffer_bytes});
}

LogBuilder &LogBuilder::device(uint32_t id, const std::string &name, uint64_t total_bytes, const std::string &uuid) {
  const uint32_t name_id = string(name), uuid_id = string(uuid);
  return define(sl_event_device{id, name_id, uuid_id, 0, total_bytes});
}

LogBuilder &LogBuilder::source_state(const std::string &source, const std::string &state, const std::string &reason) {
  const uint32_t source_id = string(source), state_id = string(state), reason_id = string(reason);
  return define(sl_event_source_state{source_id, state_id, reason_id, 0});
}

void LogBuilder::finish(Files files) {
  finished = true;
  uint32_t number = 0;
  for (auto &[ordinal, thread] : threads) {
    for (size_t i = 0; i < thread.segments.size(); i++, number++) {
      const std::string &records = thread.segments[i];
      sl_segment_header header = {};
      header.magic = SL_SEGMENT_MAGIC;
      header.version = segment_version;
      header.number = number;
      header.bytes = SL_SEGMENT_BYTES;
      header.thread = ordinal;
      header.sequence = (uint32_t)i;
      header.tid = thread.tid;
      header.base_ns = thread.bases[i];
      header.process_key = process_key;
      header.check = XXH3_64bits(&header, offsetof(sl_segment_header, check));
      const std::string head((const char *)&header, sizeof(header));
      const bool dropped = ordinal == SL_DROPPED_THREAD;
      if (files != Files::sealed || dropped) {
        char name[32];
        snprintf(name, sizeof(name), dropped ? SL_DROPPED_NAME : "%08x" SL_SEGMENT_SUFFIX, number);
        std::ofstream(directory / name, std::ios::binary) << head << records;
      }
      if (files != Files::raw && !dropped) {
        std::string stripped = records;
        for (size_t at = 0; at < stripped.size(); at += (uint8_t)stripped[at + 1] * 8)
          memset(&stripped[at + 2], 0, 2);
        std::string compressed(ZSTD_compressBound(records.size()), '\0');
        compressed.resize(ZSTD_compress(&compressed[0], compressed.size(), stripped.data(), stripped.size(), 3));
        sl_frame_header frame = {};
        frame.magic = SL_FRAME_MAGIC;
        frame.version = frame_version;
        frame.number = number;
        frame.raw_bytes = (uint32_t)records.size();
        frame.compressed_bytes = (uint32_t)compressed.size();
        uint64_t seed = XXH3_64bits(&frame, offsetof(sl_frame_header, check));
        frame.check = XXH3_64bits_withSeed(compressed.data(), compressed.size(), seed);
        std::ofstream(directory / SL_SEALED_NAME, std::ios::binary | std::ios::app)
            << std::string((const char *)&frame, sizeof(frame)) << head << compressed;
      }
    }
  }
}

#include "growing_log.h"

#include "plugin/format/events.h"
#include "plugin/format/log_format.h"

extern "C" {
#include "storage/log/log_segments.h"
#include "storage/log/segment_load.h"
}

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class Header> void append(std::string &to, const Header &header) {
  to.append(reinterpret_cast<const char *>(&header), sizeof header);
}

} // namespace

GrowingLog::GrowingLog(const fs::path &recorded, const fs::path &into) : directory(into) {
  sl_segments found = {};
  sl_error error = {};
  if (sl_segments_open(recorded.c_str(), &found, &error) < 0)
    throw std::runtime_error(error.text);
  const std::string sealed = bytes_of(recorded / SL_SEALED_NAME);
  for (size_t i = 0; i < found.count; i++) {
    const sl_segment_entry &entry = found.entries[i];
    sl_records records = {};
    if (sl_segments_load(&found, &entry, &records, &error) < 0)
      throw std::runtime_error("a segment can't be loaded");
    Segment segment;
    segment.number = entry.number;
    segment.base_ns = entry.base_ns;
    if (i + 1 < found.count && found.entries[i + 1].thread == entry.thread)
      segment.next_base_ns = found.entries[i + 1].base_ns;
    if (entry.frame_at != SL_NOT_THERE)
      segment.frame = sealed.substr(entry.frame_at, entry.disk_bytes);
    sl_segment_header header = {};
    header.magic = SL_SEGMENT_MAGIC;
    header.version = SL_LOG_VERSION;
    header.number = entry.number;
    header.bytes = SL_SEGMENT_BYTES;
    header.thread = entry.thread;
    header.sequence = entry.sequence;
    header.tid = entry.tid;
    header.base_ns = entry.base_ns;
    header.process_key = entry.process_key;
    header.check = XXH3_64bits(&header, offsetof(sl_segment_header, check));
    append(segment.raw, header);
    uint64_t base = entry.base_ns, now = entry.base_ns;
    for (size_t at = 0; at + sizeof(sl_record_header) <= records.bytes;) {
      sl_record_header record;
      std::memcpy(&record, records.data + at, sizeof record);
      if (record.words == 0)
        break;
      const char *fields = records.data + at + sizeof record;
      const size_t payload = record.words * 8u - sizeof record;
      if (record.type == SL_EVENT_time_base)
        std::memcpy(&base, fields, sizeof base);
      now = std::max(now, base + record.delta_ns);
      const uint64_t seed =
          record.type | static_cast<uint64_t>(record.words) << 8 | static_cast<uint64_t>(record.delta_ns) << 16;
      record.check = XXH3_64bits_withSeed(fields, payload, seed) & 0xffff; /* a frame's records have none */
      append(segment.raw, record);
      segment.raw.append(fields, payload);
      segment.ends.push_back(segment.raw.size());
      segment.times.push_back(now);
      at += record.words * 8u;
    }
    segment.raw.resize(std::max<size_t>(segment.raw.size(), SL_SEGMENT_BYTES));
    first = std::min(first, entry.base_ns);
    last = std::max(last, now);
    segments.push_back(std::move(segment));
    sl_records_free(&records);
  }
  sl_segments_close(&found);
  fs::create_directories(directory);
}

void GrowingLog::grow(uint64_t until_ns) {
  for (Segment &segment : segments) {
    if (segment.sealed || segment.base_ns > until_ns)
      continue;
    char name[32];
    std::snprintf(name, sizeof name, "%08x" SL_SEGMENT_SUFFIX, segment.number);
    const fs::path path = directory / name;
    /* It is sealed a little after its thread has taken the next one: here, at the next call. */
    if (segment.next_base_ns <= grown && !segment.frame.empty()) {
      std::ofstream(directory / SL_SEALED_NAME, std::ios::binary | std::ios::app) << segment.frame;
      fs::remove(path);
      segment.sealed = true;
      continue;
    }
    const size_t count = std::upper_bound(segment.times.begin(), segment.times.end(), until_ns) - segment.times.begin();
    std::string now = segment.raw;
    const size_t end = count ? segment.ends[count - 1] : sizeof(sl_segment_header);
    std::fill(now.begin() + static_cast<std::ptrdiff_t>(end), now.end(), '\0');
    std::ofstream(path, std::ios::binary) << now;
  }
  grown = until_ns;
}

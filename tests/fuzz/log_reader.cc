/*
 * A process directory of hostile files, raw and sealed, read to its end.
 *
 * The input is a list of files: what it is (a byte), its length (two bytes), its bytes. Checksums would turn nearly
 * every mutation away, so some sorts of file get theirs put right: with them, what is behind the checks is reached.
 */
#include "fuzz.h"

#include "plugin/format/log_format.h"

extern "C" {
#include "plugin/format/events.h"
#include "storage/log/event_table.h"
#include "storage/log/log_reader.h"
}

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <cstdlib>
#include <filesystem>

static std::string directory;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  directory = scratch_directory("log-reader");
  return 0;
}

static void header_repair(std::string &segment, uint32_t number) {
  if (segment.size() < sizeof(sl_segment_header))
    return;
  sl_segment_header header;
  memcpy(&header, segment.data(), sizeof(header));
  header.number = number;
  header.check = XXH3_64bits(&header, offsetof(sl_segment_header, check));
  memcpy(&segment[0], &header, sizeof(header));
}

static void records_repair(std::string &segment) {
  for (size_t at = sizeof(sl_segment_header); at + 8 <= segment.size();) {
    sl_record_header header;
    memcpy(&header, &segment[at], sizeof(header));
    if (header.words == 0 || header.words * 8u > segment.size() - at)
      break;
    uint64_t seed = (uint64_t)header.type | (uint64_t)header.words << 8 | (uint64_t)header.delta_ns << 16;
    header.check = XXH3_64bits_withSeed(&segment[at + 8], header.words * 8u - 8, seed) & 0xffff;
    memcpy(&segment[at], &header, sizeof(header));
    at += header.words * 8u;
  }
}

/* A frame header, a segment header and records, as a frame: compressed, with the right lengths and checks. */
static std::string frame_make(std::string pieces, uint32_t number) {
  if (pieces.size() < sizeof(sl_frame_header) + sizeof(sl_segment_header))
    return pieces;
  sl_frame_header frame;
  memcpy(&frame, pieces.data(), sizeof(frame));
  std::string segment = pieces.substr(sizeof(frame));
  header_repair(segment, number);
  std::string records = segment.substr(sizeof(sl_segment_header));
  std::string compressed(ZSTD_compressBound(records.size()), '\0');
  compressed.resize(ZSTD_compress(&compressed[0], compressed.size(), records.data(), records.size(), 1));
  frame.number = number;
  frame.raw_bytes = (uint32_t)records.size();
  frame.compressed_bytes = (uint32_t)compressed.size();
  frame.check =
      XXH3_64bits_withSeed(compressed.data(), compressed.size(), XXH3_64bits(&frame, offsetof(sl_frame_header, check)));
  return std::string((const char *)&frame, sizeof(frame)) + segment.substr(0, sizeof(sl_segment_header)) + compressed;
}

static void files_write(Input &input) {
  std::string sealed;
  for (uint32_t number = 0; !input.empty() && number < 16; number++) {
    const unsigned sort = input.number<uint8_t>() % 5;
    std::string file = input.bytes(input.number<uint16_t>());
    char name[32];
    snprintf(name, sizeof(name), "/%08x.slog", number);
    switch (sort) {
    case 0: write_file(directory + name, file); break;
    case 1:
    case 2:
      header_repair(file, number);
      if (sort == 2)
        records_repair(file);
      write_file(directory + name, file);
      break;
    case 3: sealed += frame_make(file, number); break;
    default: sealed += file;
    }
  }
  if (!sealed.empty())
    write_file(directory + "/sealed.slogz", sealed);
}

static void expect(bool condition) {
  if (!condition)
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (const auto &file : std::filesystem::directory_iterator(directory))
    std::filesystem::remove(file.path());
  Input input(data, size);
  files_write(input);

  sl_log *log = nullptr;
  sl_error error = {};
  sl_event event;
  if (sl_log_open(directory.c_str(), &log, &error) < 0) {
    expect(error.text[0] != '\0' && !log);
    return 0;
  }
  uint64_t events = 0;
  std::string copy;
  while (sl_log_next(log, &event, &error) == 1) {
    const struct sl_event_layout *layout = sl_event_layout(event.type);
    expect(layout->name && event.bytes >= layout->bytes && (uintptr_t)event.payload % 8 == 0);
    copy.assign((const char *)event.payload, event.bytes);
    if (event.type == SL_EVENT_info)
      expect(strlen(sl_log_string(log, ((const sl_event_info *)event.payload)->value)) <= 1000);
    expect(++events <= size * 100);
  }
  sl_log_info(log, "rank");
  struct sl_log_counts counts;
  sl_log_counts(log, &counts);
  expect(counts.events == events);
  sl_log_close(log);
  return 0;
}

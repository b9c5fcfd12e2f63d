/*
 * Writes the first inputs of the fuzz targets, from recorded runs: make_seeds DIRECTORY. What fuzzing finds beyond them
 * is added by scripts/fuzz --keep.
 */
#include "fuzz.h"

#include "fakes/ledger_builder.h"
#include "plugin/format/log_format.h"

extern "C" {
#include "plugin/format/events.h"
#include "storage/log/event_table.h"
#include "storage/log/log_reader.h"
}

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sqlite3.h>
#include <sstream>
#include <vector>

namespace fs = std::filesystem;

template <class Number> static std::string raw(Number value) {
  return std::string((const char *)&value, sizeof(value));
}

static std::string file_read(const fs::path &path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

static void seed_write(const fs::path &directory, const std::string &name, const std::string &content) {
  fs::create_directories(directory);
  std::ofstream(directory / name, std::ios::binary) << content;
}

/* The directories of all processes that were recorded. */
static std::vector<fs::path> processes() {
  std::set<fs::path> found;
  for (const auto &file : fs::recursive_directory_iterator(SL_TEST_DATA)) {
    const fs::path name = file.path().extension();
    if (name == ".slog" || name == ".slogz")
      found.insert(file.path().parent_path());
  }
  return {found.begin(), found.end()};
}

/* ---- ingest: events, in the format of ingest.cc ---- */

struct Recorded {
  uint8_t type, thread;
  uint64_t time_ns;
  std::string payload;
};

static std::vector<Recorded> events_read(const fs::path &process) {
  std::vector<Recorded> events;
  sl_log *log = nullptr;
  sl_error error = {};
  sl_event event;
  if (sl_log_open(process.c_str(), &log, &error) < 0)
    return events;
  while (sl_log_next(log, &event, &error) == 1)
    events.push_back({event.type, (uint8_t)(event.thread == 0 ? 0 : 1 + event.thread % 7), event.time_ns,
                      std::string((const char *)event.payload, event.bytes)});
  sl_log_close(log);
  return events;
}

/* Calls visit for every field that holds the id of a string. */
template <class Visit> static void string_ids(const Recorded &event, Visit visit) {
  const struct sl_event_layout *layout = sl_event_layout(event.type);
  for (unsigned i = 0; i < layout->field_count; i++)
    if (layout->fields[i].kind == SL_FIELD_string) {
      uint32_t id;
      memcpy(&id, &event.payload[layout->fields[i].offset], sizeof(id));
      visit(id);
    }
}

static std::string event_encode(const Recorded &event, uint64_t &last_ns) {
  const struct sl_event_layout *layout = sl_event_layout(event.type);
  std::string fields = event.payload.substr(0, layout->bytes), tail;
  if (layout->tail >= 0) {
    uint32_t length;
    memcpy(&length, &fields[layout->fields[layout->tail_length].offset], sizeof(length));
    tail = event.payload.substr(layout->bytes, length < 200 ? length : 200);
  }
  const uint64_t micros = event.time_ns > last_ns ? (event.time_ns - last_ns) / 1000 : 0;
  if (event.thread != 0)
    last_ns = event.time_ns;
  return raw(event.type) + raw(event.thread) + raw((uint16_t)(micros < 65535 ? micros : 65535)) + fields + tail;
}

/* A window of events, with the definitions that they need. */
static std::string window_encode(const std::vector<Recorded> &events, size_t from, size_t count) {
  std::set<uint32_t> strings;
  std::map<uint8_t, unsigned> definitions; /* taken of each type */
  std::vector<const Recorded *> taken;
  size_t at = 0;
  for (; at < events.size() && events[at].thread == 0; at++)
    if (events[at].type != SL_EVENT_string && definitions[events[at].type]++ < 20)
      taken.push_back(&events[at]);
  for (size_t i = at + from; i < events.size() && i < at + from + count; i++)
    taken.push_back(&events[i]);
  for (const Recorded *event : taken)
    string_ids(*event, [&](uint32_t id) { strings.insert(id); });
  std::string out;
  uint64_t last_ns = UINT64_MAX;
  for (size_t i = 0; i < at; i++) {
    uint32_t id;
    memcpy(&id, events[i].payload.data(), sizeof(id));
    if (events[i].type == SL_EVENT_string && strings.count(id))
      out += event_encode(events[i], last_ns);
  }
  for (const Recorded *event : taken)
    out += event_encode(*event, last_ns);
  return out;
}

static void ingest_seeds(const fs::path &out) {
  int number = 0;
  for (const fs::path &process : processes()) {
    const std::vector<Recorded> events = events_read(process);
    for (size_t from : {(size_t)0, events.size() / 3, events.size() * 2 / 3})
      seed_write(out, "recorded-" + std::to_string(number++), window_encode(events, from, 150));
  }
}

/* ---- log_reader: files, in the format of log_reader.cc ---- */

static std::string file_encode(uint8_t sort, const std::string &content) {
  const std::string part = content.substr(0, 4096);
  return raw(sort) + raw((uint16_t)part.size()) + part;
}

static void log_reader_seeds(const fs::path &out) {
  int number = 0;
  for (const fs::path &process : processes()) {
    std::string raws, repaired, sealed;
    int files = 0;
    for (const auto &file : fs::directory_iterator(process)) {
      const std::string content = file_read(file.path());
      if (file.path().extension() == ".slogz") {
        sealed = file_encode(4, content);
        continue;
      }
      if (files++ == 3)
        continue;
      raws += file_encode(0, content);
      repaired += file_encode(2, content);
      sl_frame_header frame = {SL_FRAME_MAGIC, SL_LOG_VERSION, 0, 0, 0, SL_FRAME_PLAIN, 0};
      seed_write(out, "frame-" + std::to_string(number), file_encode(3, raw(frame) + content));
      frame.encoding = SL_FRAME_DIFFERENCES;
      seed_write(out, "differences-" + std::to_string(number), file_encode(3, raw(frame) + content));
    }
    seed_write(out, "raw-" + std::to_string(number), raws + sealed);
    seed_write(out, "repaired-" + std::to_string(number), repaired);
    number++;
  }
}

/* ---- the others ---- */

static void rules_seeds(const fs::path &out) {
  for (const auto &file : fs::directory_iterator(fs::path(SL_TEST_DATA) / "../../docs/rules"))
    if (file.path().extension() == ".rules")
      seed_write(out, file.path().filename(), file_read(file.path()));
}

/* As small as SQLite makes it: in a large file most mutations hit nothing. */
static void ledger_seeds(const fs::path &out) {
  const std::string path = scratch_directory("seeds") + "/seed.sqlite";
  build_two_rank_run(path);
  sqlite3 *db = nullptr;
  sqlite3_open(path.c_str(), &db);
  sqlite3_exec(db, "PRAGMA page_size=512; VACUUM", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  seed_write(out, "sound.sqlite", file_read(path));
  seed_write(out, "changes", std::string(64, '\1'));
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: make_seeds DIRECTORY\n");
    return 2;
  }
  const fs::path out = argv[1];
  ingest_seeds(out / "ingest");
  log_reader_seeds(out / "log_reader");
  rules_seeds(out / "rules");
  ledger_seeds(out / "ledger");
  for (const char *target : {"cupti", "nvtx_calls", "nvtx_payload"}) /* no recorded form: they find their own way */
    seed_write(out / target, "ones", std::string(64, '\1'));
  return 0;
}

/*
 * Events in an order and with values that no job has, made into a ledger. The log around them is whole: this is about
 * what follows the reader, such as the replay of the allocator, phases, collectives and peaks; and about what is put in
 * the place of a part that keep-last drops.
 *
 * The input is a list of events: type (a byte), thread (a byte; 255: the chain of what was dropped), time since the one
 * before (two bytes, microseconds), the fields as in plugin/format/events.def, and, where there is a tail, as many
 * bytes as its length field says.
 */
#include "fuzz.h"

#include "commands.h"
#include "fakes/log_builder.h"
#include "plugin/format/log_format.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/log/event_table.h"
#include "storage/trim/log_drop.h"
}

#include <cstdlib>
#include <filesystem>

constexpr uint32_t TAIL_MAX = 200;
constexpr uint64_t BEGIN_NS = 1'700'000'000'000'000'000;

static std::string directory, ledger;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  directory = scratch_directory("ingest");
  ledger = directory + "/ledger.sqlite";
  return 0;
}

static void log_write(Input &input) {
  LogBuilder log(directory + "/node-1-1");
  uint64_t now = BEGIN_NS;
  while (!input.empty()) {
    const uint8_t type = input.number<uint8_t>();
    const uint8_t thread = input.number<uint8_t>();
    now += input.number<uint16_t>() * 1000u;
    const struct sl_event_layout *layout = sl_event_layout(type);
    if (!layout->name)
      continue;
    std::string fields = input.bytes(layout->bytes), tail;
    fields.resize(layout->bytes);
    if (layout->tail >= 0) {
      uint32_t length;
      char *field = &fields[layout->fields[layout->tail_length].offset];
      memcpy(&length, field, sizeof(length));
      tail = input.bytes(length < TAIL_MAX ? length : TAIL_MAX);
      length = (uint32_t)tail.size();
      memcpy(field, &length, sizeof(length));
    }
    log.thread(thread == 255 ? SL_DROPPED_THREAD : thread % 8)
        .at(now)
        .append_bytes(type, fields.data(), fields.size(), tail);
  }
}

/* From the first step, or event, behind its 20th millisecond on. */
static void middle_drop() {
  sl_log_drop_options options = {};
  const std::string process = directory + "/node-1-1";
  options.head_ns = BEGIN_NS + 10'000'000;
  options.target_ns = BEGIN_NS + 20'000'000;
  options.until_ns = UINT64_MAX;
  options.drops = [](void *, const char *) { return false; };
  sl_error error = {};
  sl_log *log = nullptr;
  if (sl_log_open(process.c_str(), &log, &error) == 0)
    sl_log_drop(log, &options, &error);
  sl_log_close(log);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  Input input(data, size);
  log_write(input);
  if (size % 2)
    middle_drop();
  sl_error note = {}, error = {};
  sl_ledger_options options = {};
  if (sl_ledger_build(directory.c_str(), ledger.c_str(), &options, &note, &error) < 0) {
    if (!error.text[0])
      abort();
    return 0;
  }
  command_run(size, ledger); /* a different one from input to input, to keep this fast */
  return 0;
}

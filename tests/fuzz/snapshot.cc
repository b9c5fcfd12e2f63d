/*
 * A memory snapshot of PyTorch's that anybody may have written: a pickle, made into a ledger or refused with one
 * sentence that names the file; and what was made can be asked.
 */
#include "commands.h"
#include "fuzz.h"

extern "C" {
#include "storage/ledger.h"
#include "storage/snapshot/snapshot_log.h"
}

#include <cstdlib>
#include <filesystem>

static std::string file, ledger;

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  const std::string directory = scratch_directory("snapshot");
  file = directory + "/snapshot.pickle";
  ledger = directory + "/snapshot.sqlite";
  return 0;
}

static void refused(const sl_error &error) {
  const std::string text = error.text;
  if (text.rfind(file, 0) != 0 || text.find('\n') != std::string::npos)
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  write_file(file, std::string((const char *)data, size));
  sl_error note = {}, error = {};
  sl_log *log = nullptr;
  if (sl_snapshot_log_open(file.c_str(), &log, &error) < 0) {
    refused(error);
    return 0;
  }
  sl_event event;
  while (sl_log_next(log, &event, &error) > 0)
    ;
  sl_log_close(log);
  if (sl_ledger_build(file.c_str(), ledger.c_str(), nullptr, &note, &error) < 0)
    abort();
  command_run(size, ledger);
  return 0;
}

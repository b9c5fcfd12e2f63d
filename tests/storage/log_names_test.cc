/* Names of a log, which its reader shows to terminals, pages and other programs. */
#include "fakes/log_builder.h"

extern "C" {
#include "storage/log/log_reader.h"
}

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

TEST(LogNames, MakeEachByteHarmlessWhereverItStands) {
  const fs::path directory = fs::temp_directory_path() / ("names-" + std::to_string(getpid()));
  fs::create_directories(directory);
  LogBuilder builder(directory);
  const std::string plain(26, 'a');
  std::vector<std::pair<uint32_t, std::string>> expected; /* printable ASCII stays, and no other byte is UTF-8 alone */
  for (int byte = 1; byte < 256; byte++)
    for (size_t at = 0; at < plain.size(); at += 1 + byte % 3) {
      const std::string name = std::string(plain).replace(at, 1, 1, (char)byte);
      const char *made = byte < 0x20 || byte == 0x7f ? "?" : byte < 0x7f ? nullptr : "\xef\xbf\xbd";
      expected.emplace_back(builder.string(name), made ? std::string(plain).replace(at, 1, made) : name);
    }
  builder.finish();
  sl_log *log;
  sl_error error;
  ASSERT_EQ(sl_log_open(directory.c_str(), &log, &error), 0);
  for (const auto &[id, name] : expected)
    EXPECT_EQ(sl_log_string(log, id), name);
  sl_log_close(log);
  fs::remove_all(directory);
}

} // namespace

/* Files that another program cuts short while they are read: zeros and a sentence, never SIGBUS. */
extern "C" {
#include "storage/mapped_file.h"
#include "storage/snapshot/snapshot_log.h"
}

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
constexpr size_t kBytes = 3 * 65536; /* several pages, however large these are */

class MappedFile : public testing::Test {
protected:
  void write(const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  int open_it(sl_mapped_file *file) {
    return sl_mapped_file_open(open(path.c_str(), O_RDONLY | O_CLOEXEC), file);
  }
  void SetUp() override {
    ASSERT_NE(mkdtemp(directory.data()), nullptr);
    path = directory + "/rank_0.pickle";
  }
  void TearDown() override {
    fs::remove_all(directory);
  }
  std::string directory = testing::TempDir() + "mapped-XXXXXX", path;
};

TEST_F(MappedFile, ReadsZerosWhereItWasCut) {
  write(std::string(kBytes, 'x'));
  sl_mapped_file file;
  ASSERT_EQ(open_it(&file), 0);
  ASSERT_EQ(file.length, kBytes);
  EXPECT_FALSE(sl_mapped_file_is_changed(&file));
  fs::resize_file(path, 0);
  for (size_t at = 0; at < kBytes; at += 1024)
    ASSERT_EQ(file.data[at], 0) << at;
  EXPECT_TRUE(sl_mapped_file_is_changed(&file));
  sl_mapped_file_close(&file);
  sl_mapped_file_close(&file);
}

TEST_F(MappedFile, IsChangedWhereItWasWrittenTo) {
  write("one");
  sl_mapped_file file;
  ASSERT_EQ(open_it(&file), 0);
  const auto later = fs::last_write_time(path) + std::chrono::seconds(1);
  write("two");
  fs::last_write_time(path, later);
  EXPECT_TRUE(sl_mapped_file_is_changed(&file));
  sl_mapped_file_close(&file);
}

TEST_F(MappedFile, IsNoDirectory) {
  sl_mapped_file file;
  EXPECT_EQ(sl_mapped_file_open(open(directory.c_str(), O_RDONLY | O_CLOEXEC), &file), -EBADMSG);
  sl_mapped_file_close(&file);
}

TEST_F(MappedFile, SaysThatTooManyAreOpen) {
  write("some");
  sl_mapped_file files[65];
  for (int i = 0; i < 64; i++)
    ASSERT_EQ(open_it(&files[i]), 0) << i;
  EXPECT_EQ(open_it(&files[64]), -EMFILE);
  sl_mapped_file_close(&files[0]);
  EXPECT_EQ(open_it(&files[64]), 0);
  for (sl_mapped_file &file : files)
    sl_mapped_file_close(&file);
}

TEST_F(MappedFile, LeavesAnyOtherSignalAsItWas) {
  const auto read_what_nobody_mapped_so = [this] {
    write(std::string(kBytes, 'x'));
    sl_mapped_file file;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const auto *data = static_cast<volatile char *>(mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd, 0));
    if (open_it(&file) == 0 && data != MAP_FAILED && ftruncate(open(path.c_str(), O_RDWR), 0) == 0 &&
        data[kBytes - 1] == 0)
      _exit(0);
    _exit(0);
  };
  EXPECT_DEATH(read_what_nobody_mapped_so(), "");
}

/* A pickle of what a snapshot has, and of a text that makes it long. */
std::string snapshot() {
  const auto text = [](const std::string &of) {
    const auto size = static_cast<uint32_t>(of.size());
    return 'X' + std::string(reinterpret_cast<const char *>(&size), sizeof size) + of;
  };
  return "\x80\x02}(" + text("segments") + ']' + text("device_traces") + ']' + text("more") +
         text(std::string(kBytes, 'x')) + "u.";
}

TEST_F(MappedFile, OfASnapshotThatIsCutIsASentence) {
  write(snapshot());
  sl_log *log = nullptr;
  sl_error error = {};
  sl_event event;
  ASSERT_EQ(sl_snapshot_log_open(path.c_str(), &log, &error), 0) << error.text;
  int r;
  while ((r = sl_log_next(log, &event, &error)) > 0)
    continue;
  EXPECT_EQ(r, 0) << error.text;
  sl_log_close(log);
  ASSERT_EQ(sl_snapshot_log_open(path.c_str(), &log, &error), 0) << error.text;
  fs::resize_file(path, 10);
  while ((r = sl_log_next(log, &event, &error)) > 0)
    continue;
  EXPECT_EQ(r, -EBADMSG);
  EXPECT_NE(std::string(error.text).find("rank_0.pickle changed while it was read; ask again when it is written"),
            std::string::npos)
      << error.text;
  sl_log_close(log);
}

} // namespace

#include "fuzz.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace fs = std::filesystem;

static fs::path scratch;

std::string scratch_directory(const std::string &name) {
  scratch = fs::path(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") /
            ("shardledger-fuzz-" + name + "-" + std::to_string(getpid()));
  fs::remove_all(scratch);
  fs::create_directories(scratch);
  atexit([] {
    std::error_code ignored;
    fs::remove_all(scratch, ignored);
  });
  return scratch;
}

void write_file(const std::string &path, const std::string &content) {
  int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, content.data(), content.size()) != (ssize_t)content.size())
    abort();
  close(file);
}

#include "command.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

std::string command_path() {
  return std::string(SL_BUILD_DIR) + "/bin/shardledger";
}

[[noreturn]] void become(const std::vector<std::string> &arguments, const CommandOptions &options) {
  std::vector<char *> argv;
  std::string path = command_path();
  argv.push_back(path.data());
  for (const std::string &argument : arguments)
    argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);
  /* What the machine that runs the tests has set is not part of any test. */
  for (const char *name : {"SHARDLEDGER_DIR", "NO_COLOR", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "RANK",
                           "WORLD_SIZE", "NCCL_NVTX_DISABLE"})
    unsetenv(name);
  setenv("LC_ALL", "C.UTF-8", 1);
  setenv("TERM", "xterm", 1);
  for (const auto &variable : options.environment)
    setenv(variable.first.c_str(), variable.second.c_str(), 1);
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0)
    _exit(99);
  if (options.unprivileged && geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
    _exit(97);
  execv(argv[0], argv.data());
  _exit(98);
}

/* Reads both streams to their ends, which a terminal reports as an error. */
void read_all(int out, int error, CommandResult &result) {
  struct pollfd streams[2] = {{out, POLLIN, 0}, {error, POLLIN, 0}};
  std::string *texts[2] = {&result.out, &result.error};
  int open = error >= 0 ? 2 : 1;
  while (open > 0 && poll(streams, 2, 300'000) > 0)
    for (int i = 0; i < 2; i++) {
      char buffer[4096];
      if (streams[i].fd < 0 || !streams[i].revents)
        continue;
      ssize_t length = read(streams[i].fd, buffer, sizeof(buffer));
      if (length > 0) {
        texts[i]->append(buffer, length);
      } else {
        close(streams[i].fd);
        streams[i].fd = -1;
        open--;
      }
    }
}

} // namespace

CommandResult shardledger(const std::vector<std::string> &arguments, const CommandOptions &options) {
  CommandResult result;
  int out[2] = {-1, -1}, error[2] = {-1, -1};
  pid_t child = -1;
  if (options.terminal) {
    struct winsize size = {40, 100, 0, 0};
    child = forkpty(&out[0], nullptr, nullptr, &size);
    if (child == 0)
      become(arguments, options);
  } else {
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(error), 0);
    child = fork();
    if (child == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(error[1], STDERR_FILENO);
      for (int fd : {out[0], out[1], error[0], error[1]})
        close(fd);
      become(arguments, options);
    }
    close(out[1]);
    close(error[1]);
  }
  read_all(out[0], error[0], result);
  int status = 0;
  rusage used{};
  EXPECT_EQ(wait4(child, &status, 0, &used), child);
  for (const timeval &time : {used.ru_utime, used.ru_stime})
    result.seconds += (double)time.tv_sec + (double)time.tv_usec / 1e6;
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

TemporaryDirectory::TemporaryDirectory() {
  char name[] = "/tmp/shardledger-test-XXXXXX";
  EXPECT_NE(mkdtemp(name), nullptr);
  path = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, ignored);
  std::filesystem::remove_all(path, ignored);
}

std::string recorded_ledger(const TemporaryDirectory &directory, const std::string &run) {
  std::string path = directory / std::filesystem::path(run).filename().string() + ".sqlite";
  CommandResult done = shardledger({"ingest", std::string(SL_TEST_DATA) + "/" + run, "-o", path});
  EXPECT_EQ(done.status, 0) << done.error;
  return path;
}

void write_file(const std::string &path, const std::string &content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string read_file(const std::string &path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

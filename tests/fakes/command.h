/* Runs the built command the way a shell would, for tests of what users see. */
#pragma once

#include <map>
#include <string>
#include <vector>

struct CommandResult {
  int status = -1;    /* exit status, or 128 + signal */
  double seconds = 0; /* of the processor, its children's included */
  std::string out, error;
};

struct CommandOptions {
  std::map<std::string, std::string> environment; /* on top of the test's own */
  std::string directory;                          /* to start in; "": the test's own */
  bool terminal = false;                          /* stdout and stderr are one terminal of 100 columns; both in out */
  bool unprivileged = false;                      /* as nobody when the tests run as root, whom no permission stops */
};

/* shardledger with these arguments. */
CommandResult shardledger(const std::vector<std::string> &arguments, const CommandOptions &options = {});

/* A directory for one test, removed at the end. */
class TemporaryDirectory {
public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;
  std::string path;
  std::string operator/(const std::string &name) const {
    return path + "/" + name;
  }
};

/* The ledger of a run of tests/data, in the directory. */
std::string recorded_ledger(const TemporaryDirectory &directory, const std::string &run);

void write_file(const std::string &path, const std::string &content);
std::string read_file(const std::string &path);

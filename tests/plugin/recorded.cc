#include "plugin/recorded.h"

#include <chrono>
#include <dirent.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" {
#include "storage/log/log_reader.h"
}

std::string Recording::name(uint32_t id) const {
  auto found = names.find(id);
  return found == names.end() ? "" : found->second;
}

std::vector<Event> Recording::of(sl_event_type type) const {
  std::vector<Event> out;
  for (const Event &event : events)
    if (event.type == type)
      out.push_back(event);
  return out;
}

std::string Recording::state(const std::string &source) const {
  std::string last;
  for (const auto &event : all<sl_event_source_state>(SL_EVENT_source_state))
    if (name(event.source) == source)
      last = name(event.state) + ": " + name(event.reason);
  return last;
}

uint64_t Recording::lost() const {
  uint64_t sum = 0;
  for (const auto &gap : all<sl_event_gap>(SL_EVENT_gap))
    sum += gap.lost;
  return sum;
}

static std::string only_subdirectory(const std::string &directory) {
  std::string found;
  DIR *entries = opendir(directory.c_str());
  while (dirent *entry = entries ? readdir(entries) : nullptr)
    if (entry->d_name[0] != '.')
      found = directory + "/" + entry->d_name;
  if (entries)
    closedir(entries);
  return found;
}

/* Returns what is wrong with it, or "". */
static std::string read_log(const std::string &directory, Recording *recording) {
  sl_log *log = nullptr;
  sl_error error = {};
  if (sl_log_open(directory.c_str(), &log, &error) != 0)
    return error.text;
  sl_event event;
  int r;
  while ((r = sl_log_next(log, &event, &error)) == 1) {
    const uint8_t *payload = static_cast<const uint8_t *>(event.payload);
    recording->events.push_back(
        {event.type, event.thread, event.tid, event.time_ns, std::vector<uint8_t>(payload, payload + event.bytes)});
    if (event.type == SL_EVENT_string) {
      uint32_t id = recording->events.back().as<sl_event_string>().id;
      recording->names[id] = sl_log_string(log, id);
    }
  }
  struct sl_log_counts counts;
  sl_log_counts(log, &counts);
  sl_log_close(log);
  if (r != 0)
    return error.text;
  return counts.damaged_segments ? std::to_string(counts.damaged_segments) + " damaged segments" : "";
}

Recording read_recording(const std::string &root) {
  Recording recording;
  const std::string process = only_subdirectory(root);
  if (!process.empty()) {
    EXPECT_EQ(read_log(process, &recording), "");
  }
  return recording;
}

Recording recorded_so_far() {
  Recording recording;
  read_log(only_subdirectory(getenv("SHARDLEDGER_DIR")), &recording);
  return recording;
}

bool eventually(const std::function<bool()> &condition) {
  const auto begin = std::chrono::steady_clock::now();
  for (; !condition(); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    if (std::chrono::steady_clock::now() - begin > std::chrono::minutes(1))
      return false;
  return true;
}

bool has_gap(const std::string &directory, const std::string &reason) {
  sl_log *log = nullptr;
  sl_error error = {};
  if (sl_log_open(directory.c_str(), &log, &error) != 0)
    return false;
  bool found = false;
  for (sl_event event; !found && sl_log_next(log, &event, &error) == 1;)
    found = event.type == SL_EVENT_gap &&
            reason == sl_log_string(log, static_cast<const sl_event_gap *>(event.payload)->reason);
  sl_log_close(log);
  return found;
}

Recording record(const Environment &environment, const std::function<void()> &body) {
  char directory[] = "/tmp/shardledger-test-XXXXXX";
  Recording recording;
  if (!mkdtemp(directory)) {
    ADD_FAILURE() << "no temporary directory";
    return recording;
  }
  fflush(nullptr);
  auto failed = [] { return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count(); };
  int failed_before = failed();
  pid_t child = fork();
  if (child == 0) {
    setenv("SHARDLEDGER_DIR", directory, 1);
    setenv("SHARDLEDGER_PYTHON", "off", 1);
    setenv("SHARDLEDGER_LOG", "quiet", 0);
    for (const auto &variable : environment)
      setenv(variable.first.c_str(), variable.second.c_str(), 1);
    body();
    exit(failed() == failed_before ? 0 : 1); /* through the plugin's orderly end */
  }
  waitpid(child, &recording.status, 0);
  EXPECT_EQ(recording.status, 0);
  Recording read = read_recording(directory);
  recording.events = std::move(read.events);
  recording.names = std::move(read.names);
  std::string command = std::string("rm -rf ") + directory;
  EXPECT_EQ(system(command.c_str()), 0);
  return recording;
}

Recording record_program(const Environment &environment, const std::vector<std::string> &command) {
  return record(environment, [&] {
    std::vector<char *> arguments;
    for (const std::string &argument : command)
      arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    ADD_FAILURE() << "can't run " << command[0];
  });
}

/* `shardledger run` stands between a job and its parent, and neither may notice. */
#include "fakes/command.h"
#include "fakes/log_builder.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <thread>
#include <unistd.h>

namespace {

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

class Run : public testing::Test {
protected:
  CommandResult run(const std::vector<std::string> &command, const CommandOptions &options = {}) {
    std::vector<std::string> arguments = {"run", "-o", out, "--"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return shardledger(arguments, options);
  }
  TemporaryDirectory directory;
  std::string out = directory / "out";
};

TEST_F(Run, ExitStatusAndOutputAreTheCommands) {
  CommandResult result = run({"sh", "-c", "echo result; echo remark >&2; exit 37"});
  EXPECT_EQ(result.status, 37);
  EXPECT_EQ(result.out, "result\n");
  EXPECT_EQ(result.error.find("remark\n"), 0u);
  EXPECT_EQ(run({"true"}).status, 0);
}

TEST_F(Run, DeathBySignalIs128PlusItsNumber) {
  EXPECT_EQ(run({"sh", "-c", "kill -KILL $$"}).status, 128 + SIGKILL);
  EXPECT_EQ(run({"sh", "-c", "kill -ABRT $$"}).status, 128 + SIGABRT);
}

TEST_F(Run, ACommandThatIsNotThereIs127AndOneThatCannotRunIs126) {
  CommandResult missing = run({"no-such-command-here"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_TRUE(contains(missing.error, "no-such-command-here can't be started: No such file or directory"));
  EXPECT_FALSE(contains(missing.error, "nothing was recorded")) << "one sentence: " << missing.error;
  write_file(directory / "script", "echo");
  EXPECT_EQ(run({directory / "script"}).status, 126);
}

TEST_F(Run, AWrongOptionIsSaidOnceAndStartsNothing) {
  CommandResult result = shardledger({"run", "-o", out, "--steps", "5:1", "--", "touch", directory / "ran"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.error,
            "shardledger: run: --steps takes auto|all|A:B, steps A up to but not including B, not '5:1'\n");
  EXPECT_FALSE(std::filesystem::exists(directory / "ran"));
}

TEST_F(Run, TheCommandFindsThePluginAndAnAbsoluteDirectoryInItsEnvironment) {
  CommandOptions options;
  options.directory = directory.path;
  CommandResult result =
      shardledger({"run", "-o", "deep/er", "--kernels", "all", "--max-bytes=1GiB", "--", "sh", "-c",
                   "echo $CUDA_INJECTION64_PATH $NVTX_INJECTION64_PATH $SHARDLEDGER_DIR $SHARDLEDGER_KERNELS "
                   "$SHARDLEDGER_MAX_BYTES"},
                  options);
  std::string plugin = std::filesystem::canonical(std::string(SL_BUILD_DIR) + "/lib/libshardledger.so").string();
  EXPECT_EQ(result.out, plugin + " " + plugin + " " + directory.path + "/deep/er all 1GiB\n") << result.error;
}

TEST_F(Run, OptionsBehindTheCommandAreTheCommands) {
  EXPECT_EQ(run({"echo", "--kernels", "-o", "x"}).out, "--kernels -o x\n");
  EXPECT_EQ(shardledger({"run", "-o", out, "sh", "-c", "echo $0", "--help"}).out, "--help\n")
      << "without the dashes too";
}

TEST_F(Run, WrongOptionsAreRefusedBeforeAnythingStarts) {
  CommandResult result = shardledger({"run", "-o", out, "--kernels", "some", "--", "echo", "started"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(contains(result.error, "--kernels takes nccl|all|none, not 'some'")) << result.error;
  EXPECT_EQ(shardledger({"run", "-o", out, "--steps", "9:1", "--", "true"}).status, 2);
  EXPECT_EQ(shardledger({"run", "-o", out, "--modules", "3", "--", "true"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Run, NothingRecordedLeavesNothingAndSaysWhy) {
  CommandResult result = run({"true"});
  EXPECT_TRUE(contains(result.error, "nothing was recorded")) << result.error;
  EXPECT_TRUE(contains(result.error, "shardledger doctor"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Run, ADirectoryThatWasThereStays) {
  std::filesystem::create_directory(out);
  run({"true"});
  EXPECT_TRUE(std::filesystem::exists(out));
}

TEST_F(Run, AnEarlierRunIsNotMixedWithANewOne) {
  std::filesystem::create_directories(out + "/node1-1-1");
  write_file(out + "/node1-1-1/00000000.slog", "x");
  std::filesystem::create_directories(out + "-2/node1-2-1");
  write_file(out + "-2/node1-2-1/sealed.slogz", "x");
  CommandResult result = run({"sh", "-c", "echo $SHARDLEDGER_DIR"});
  EXPECT_EQ(result.out, out + "-3\n");
  EXPECT_TRUE(contains(result.error, out + " holds an earlier run; recording into " + out + "-3\n")) << result.error;
}

TEST_F(Run, TasksOfOneLauncherShareTheirDirectory) {
  std::filesystem::create_directories(out + "/node1-1-1");
  write_file(out + "/node1-1-1/00000000.slog", "x");
  CommandOptions options;
  options.environment = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  CommandResult result = run({"sh", "-c", "echo $SHARDLEDGER_DIR"}, options);
  EXPECT_EQ(result.out, out + "\n");
  EXPECT_EQ(result.error, "");
}

TEST_F(Run, ARecordedRunEndsWithItsLedgerAndSummary) {
  std::string recorded = std::string(SL_TEST_DATA) + "/fsdp2-2rank";
  CommandResult result = run({"sh", "-c", "cp -r " + recorded + "/. $SHARDLEDGER_DIR; echo trained; exit 3"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out.find("trained\n0 events lost, 0 gaps; "), 0u) << result.out << result.error;
  EXPECT_TRUE(contains(result.out, "\nPeak "));
  EXPECT_TRUE(contains(result.out, "Alive at the peak"));
  EXPECT_TRUE(contains(result.error, "recorded in " + out + "; go on with 'shardledger peaks " + out + "'\n"));
  EXPECT_TRUE(std::filesystem::exists(out + "/ledger.sqlite"));
}

TEST_F(Run, AJobThatRanOutOfMemoryIsFirstSaidToHaveDiedAndWhy) {
  const std::string recorded = directory / "recorded";
  {
    LogBuilder log(recorded + "/host-1-1", 1'000'000'000'000'000'000);
    log.info("rank", "0").info("world_size", "1");
    auto &thread = log.thread(1);
    thread.at(1'000'000'000'000'000'100).allocator(SL_SEGMENT_ALLOC, 0x10000000, 4 << 20);
    thread.allocator(SL_ALLOC, 0x10000000, 4 << 20).allocator(SL_OUT_OF_MEMORY, 0, 1 << 30).process_end();
    log.finish();
  }
  const std::string copy = "cp -r " + recorded + "/. $SHARDLEDGER_DIR; exit ";
  CommandResult result = run({"sh", "-c", copy + "1"});
  EXPECT_EQ(result.status, 1);
  const size_t died = result.out.find("Out of memory: rank 0, in a job without steps: 1.00 GiB asked for by PyTorch's "
                                      "allocator\n"),
               peak = result.out.find("\nPeak 4.0 MiB allocated: rank 0, in a job without steps\n");
  EXPECT_TRUE(contains(result.out, "Why: ")) << result.out;
  EXPECT_NE(peak, std::string::npos) << result.out << result.error;
  EXPECT_LT(died, peak) << result.out;
  EXPECT_FALSE(contains(run({"sh", "-c", copy + "0"}).out, "Out of memory")) << "it went on to its end";
}

TEST_F(Run, ALogThatCannotBeReadDoesNotChangeTheExitStatus) {
  CommandResult result =
      run({"sh", "-c", "mkdir -p $SHARDLEDGER_DIR/n-1-1; echo junk > $SHARDLEDGER_DIR/n-1-1/00000000.slog; exit 5"});
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(contains(result.error, "can't be shown")) << result.error;
}

TEST_F(Run, AnotherToolInCudasPlaceIsHandedOn) {
  CommandOptions options;
  options.environment["CUDA_INJECTION64_PATH"] = "/opt/other/tool.so";
  CommandResult result = run({"sh", "-c", "echo $SHARDLEDGER_OTHER_INJECTION $CUDA_INJECTION64_PATH"}, options);
  EXPECT_TRUE(contains(result.error, "CUDA_INJECTION64_PATH was /opt/other/tool.so")) << result.error;
  EXPECT_EQ(result.out.rfind("/opt/other/tool.so ", 0), 0u) << result.out;
  EXPECT_TRUE(contains(result.out, "libshardledger.so")) << result.out;
}

TEST_F(Run, AnotherToolInNvtxsPlaceKeepsIt) {
  CommandOptions options;
  options.environment["NVTX_INJECTION64_PATH"] = "/opt/other/tool.so";
  CommandResult result = run({"sh", "-c", "echo $NVTX_INJECTION64_PATH; basename $CUDA_INJECTION64_PATH"}, options);
  EXPECT_TRUE(contains(result.error, "NVTX_INJECTION64_PATH is /opt/other/tool.so, which keeps all")) << result.error;
  EXPECT_EQ(result.out, "/opt/other/tool.so\nlibshardledger.so\n");
}

/* It ends a program that has CUDA's variable. */
TEST_F(Run, NsightComputeIsLeftItsPlaceWhicheverStartsTheOther) {
  const char *script = "echo ${CUDA_INJECTION64_PATH-none} $SHARDLEDGER_ATTACH $(basename $NVTX_INJECTION64_PATH)";
  symlink("/bin/sh", (directory / "ncu").c_str());
  CommandResult result = run({directory / "ncu", "-c", script});
  EXPECT_TRUE(contains(result.error, "Nsight Compute ends programs")) << result.error;
  EXPECT_EQ(result.out, "none nvtx libshardledger.so\n");

  CommandOptions options;
  options.environment["NV_NSIGHT_INJECTION_TRANSPORT_TYPE"] = "uds";
  EXPECT_EQ(run({"sh", "-c", script}, options).out, "none nvtx libshardledger.so\n");

  options.environment["NVTX_INJECTION64_PATH"] = "/opt/other/tool.so";
  result = run({"sh", "-c", script}, options);
  EXPECT_TRUE(contains(result.error, "NVTX_INJECTION64_PATH is /opt/other/tool.so: nothing can be recorded; unset"))
      << result.error;
  EXPECT_FALSE(contains(result.error, "attaches at")) << result.error;
  EXPECT_EQ(result.out, "none nvtx tool.so\n");
}

/* Runs a command that notes each signal which it gets and ends with 40 soon after the first; `send` is told its leader.
 */
class Signals : public Run {
protected:
  static std::string command() {
    return std::string(SL_BUILD_DIR) + "/bin/shardledger";
  }
  std::string script(int signal) {
    ready = directory / "ready" + std::to_string(signal);
    trace = ready + ".trace";
    return "trap 'echo got >> " + trace + "' " + std::to_string(signal) + "; : > " + ready +
           "; i=0; while [ $i -lt 3000 ] && ! [ -s " + trace +
           " ]; do sleep 0.02; i=$((i+1)); done; sleep 0.2; sleep 0.05; exit 40";
  }
  [[noreturn]] void become(const std::string &script) {
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    execl(command().c_str(), "shardledger", "run", "-o", out.c_str(), "--", "sh", "-c", script.c_str(), nullptr);
    _exit(98);
  }
  void wait_until_ready() {
    for (int i = 0; i < 6000 && access(ready.c_str(), F_OK) != 0; i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  template <typename Send> void expect_once(int signal, Send send) {
    const std::string text = script(signal);
    pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      become(text);
    }
    wait_until_ready();
    send(child);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 40) << signal;
    EXPECT_EQ(read_file(trace), "got\n") << signal;
  }
  std::string ready, trace;
};

const int all_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH, 40};

TEST_F(Signals, ToTheProcessAloneReachTheCommandOnce) {
  for (int signal : all_signals)
    expect_once(signal, [&](pid_t leader) { kill(leader, signal); });
}

TEST_F(Signals, ToTheWholeGroupReachTheCommandOnce) {
  for (int signal : all_signals)
    expect_once(signal, [&](pid_t leader) { kill(-leader, signal); });
}

/* As systemd and Slurm do it: one process after the other. */
TEST_F(Signals, ToEachProcessOfTheGroupReachTheCommandOnce) {
  expect_once(SIGTERM, [&](pid_t leader) {
    /* Also what has ended meanwhile, such as one of the script's sleeps: kill says so, and goes on. */
    const std::string pids = "kill -TERM $(pgrep -g " + std::to_string(leader) + ") 2>/dev/null || :";
    EXPECT_EQ(system(pids.c_str()), 0);
  });
}

/* The process that tells the two apart must not be taken for the command that users know. */
TEST_F(Signals, ToAllProcessesOfOurNameReachTheCommandOnce) {
  expect_once(SIGTERM, [&](pid_t leader) {
    const std::string group = "pkill -TERM -g " + std::to_string(leader);
    EXPECT_EQ(system((group + " -x shardledger").c_str()), 0);
  });
  expect_once(SIGUSR1, [&](pid_t leader) {
    const std::string group = "pkill -USR1 -g " + std::to_string(leader);
    EXPECT_EQ(system((group + " -f 'shardledger run'").c_str()), 0);
  });
}

TEST_F(Signals, OfATerminalReachTheCommandOnce) {
  const struct {
    int signal;
    char key;
  } keys[] = {{SIGINT, '\003'}, {SIGQUIT, '\034'}};
  for (const auto &key : keys) {
    const std::string text = script(key.signal);
    int terminal = -1;
    pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0)
      become(text);
    wait_until_ready();
    EXPECT_EQ(write(terminal, &key.key, 1), 1);
    char said[4096];
    while (read(terminal, said, sizeof said) > 0)
      ;
    int status = 0;
    waitpid(child, &status, 0);
    close(terminal);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 40) << key.signal;
    EXPECT_EQ(read_file(trace), "got\n") << key.signal;
  }
}

/* What ends the command ends it alone: its status is still told, and nothing else is left. */
TEST_F(Signals, ThatEndTheCommandGiveItsStatus) {
  for (int target : {1, -1}) {
    ready = directory / "ready" + std::to_string(target);
    const std::string text = ": > " + ready + "; exec sleep 10";
    pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      become(text);
    }
    wait_until_ready();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(target * child, SIGTERM);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 128 + SIGTERM) << target;
    EXPECT_NE(kill(-child, 0), 0) << "processes are left";
  }
}

/* A shell's part: Ctrl-Z stops the job, and it goes on when it is continued. Exits with 0 when it was so. */
[[noreturn]] void be_the_shell(const std::function<void()> &become) {
  signal(SIGTTOU, SIG_IGN);
  pid_t job = fork();
  if (job == 0) {
    setpgid(0, 0);
    tcsetpgrp(0, getpid());
    signal(SIGTTOU, SIG_DFL);
    become();
  }
  setpgid(job, job);
  int status = 0;
  if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status))
    _exit(1);
  tcsetpgrp(0, job);
  kill(-job, SIGCONT);
  if (waitpid(job, &status, WUNTRACED) != job || !WIFEXITED(status))
    _exit(2);
  _exit(WEXITSTATUS(status) == 40 ? 0 : 3);
}

TEST_F(Signals, CtrlZStopsTheJobUntilItIsContinued) {
  const std::string text = script(SIGCONT);
  int terminal = -1;
  pid_t shell = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (shell == 0)
    be_the_shell([&] { become(text); });
  wait_until_ready();
  EXPECT_EQ(write(terminal, "\032", 1), 1);
  char said[4096];
  while (read(terminal, said, sizeof said) > 0)
    ;
  int status = 0;
  waitpid(shell, &status, 0);
  close(terminal);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  EXPECT_EQ(read_file(trace), "got\n");
}

TEST_F(Run, TheCommandIsInTheSameProcessGroup) {
  CommandResult result = run({"sh", "-c", "ps -o pgid= -p $$; ps -o pgid= -p $PPID"});
  std::string first = result.out.substr(0, result.out.find('\n') + 1);
  EXPECT_EQ(result.out, first + first) << result.out;
}

} // namespace

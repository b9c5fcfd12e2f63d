/* Trims the logs of a running job, for `trim` and beside `run`. */
#include "commands/trimmer.h"

#include "output/terminal.h"
#include "plugin/process/config.h"
#include "storage/trim/run_trim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NICENESS = 10 };

static volatile sig_atomic_t stopped;

static void on_stop(int signal) {
  (void)signal;
  stopped = 1;
}

/* Blocks the signals that stop us, but while we wait: so none is missed in between. */
static void signals_take(sigset_t *while_waiting) {
  static const int ours[] = {SIGINT, SIGTERM, SIGHUP};
  sigset_t blocked;
  sigemptyset(&blocked);
  for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
    struct sigaction action = {.sa_handler = on_stop};
    sigaction(ours[i], &action, NULL);
    sigaddset(&blocked, ours[i]);
  }
  signal(SIGCHLD, SIG_DFL); /* whoever started us may have had it ignored, and then workers have no status */
  sigprocmask(SIG_BLOCK, &blocked, while_waiting);
  for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
    sigdelset(while_waiting, ours[i]);
}

void sl_trimmer_say(const char *directory, const char *text) {
  sl_complain("no part of the log in %s can be dropped to make room: %s", directory, text);
}

int sl_trimmer_follow(const char *directory, pid_t parent) {
  sigset_t while_waiting;
  signals_take(&while_waiting);
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICENESS);
  const struct sl_trim_options options = {.directory = directory,
                                          .parent = parent,
                                          .stop = &stopped,
                                          .while_waiting = &while_waiting,
                                          .say = sl_trimmer_say};
  return sl_run_trim(&options);
}

/* Nobody waits for the end of what we could say or read. What goes wrong is said on stderr, as by the job. */
static void leave_terminal(void) {
  setpgid(0, 0);
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0)
    return;
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
}

pid_t sl_trimmer_start(const char *directory) {
  if (sl_option_max_bytes() == 0 || strcmp(sl_option_text(SL_OPTION_at_max), "keep-last") != 0)
    return 0;
  const pid_t parent = getpid(), trimmer = fork();
  if (trimmer == 0) {
    leave_terminal();
    _exit(sl_trimmer_follow(directory, parent) < 0);
  }
  if (trimmer < 0)
    sl_complain("run: older steps can't be dropped (%s): recording stops at SHARDLEDGER_MAX_BYTES", strerror(errno));
  return trimmer > 0 ? trimmer : 0;
}

void sl_trimmer_stop(pid_t trimmer) {
  if (trimmer == 0)
    return;
  kill(trimmer, SIGTERM);
  while (waitpid(trimmer, NULL, 0) < 0 && errno == EINTR)
    ;
}

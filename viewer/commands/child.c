#include "commands/child.h"
#include "output/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/* In the child: becomes the command, or tells the parent why not. */
static void become(char *const argv[], const sigset_t *mask, int report) {
  signal(SIGXFSZ, SIG_DFL); /* ignored in main.c, and that is not the command's affair */
  sigprocmask(SIG_SETMASK, mask, NULL);
  execvp(argv[0], argv);
  int reason = errno;
  ssize_t written = write(report, &reason, sizeof(reason));
  _exit(written == sizeof(reason) ? 127 : 126);
}

/* Waits for the child; signals that somebody sends meanwhile go on to it. */
static int wait_and_forward(pid_t child, const sigset_t *signals) {
  int status = 0;
  for (;;) {
    siginfo_t info = {0};
    pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child || (done < 0 && errno != EINTR))
      break;
    if (sigwaitinfo(signals, &info) < 0 || info.si_signo == SIGCHLD)
      continue;
    /* The kernel's own (Ctrl-C, a hangup) went to the whole process group, so the child has it already. */
    if (info.si_code != SI_KERNEL)
      kill(child, info.si_signo);
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int sl_run_child(char *const argv[], bool *started) {
  int report[2] = {-1, -1};
  int reason = 0;
  *started = false;
  int status = 126;
  sigset_t signals, mask;

  if (pipe2(report, O_CLOEXEC) != 0) {
    sl_complain("run: %s can't be started: %s", argv[0], strerror(errno));
    return status;
  }
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
    sigaddset(&signals, forwarded[i]);
  signal(SIGCHLD, SIG_DFL); /* whoever started us may have had it ignored, and then there is no status to wait for */
  sigprocmask(SIG_BLOCK, &signals, &mask);

  pid_t child = fork();
  if (child == 0)
    become(argv, &mask, report[1]);
  close(report[1]);
  if (child < 0) {
    sl_complain("run: %s can't be started: %s", argv[0], strerror(errno));
  } else {
    ssize_t length = 0;
    do
      length = read(report[0], &reason, sizeof(reason)); /* ends when the command has begun */
    while (length < 0 && errno == EINTR);
    status = wait_and_forward(child, &signals);
    *started = length != sizeof(reason);
    if (!*started) {
      sl_complain("run: %s can't be started: %s", argv[0], strerror(reason));
      status = reason == ENOENT ? 127 : 126;
    }
  }
  close(report[0]);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return status;
}

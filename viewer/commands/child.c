/* Runs the user's command, and passes on its signals and its end. */
#include "commands/child.h"
#include "commands/group_witness.h"
#include "output/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Faults are our own, and so is what writing may raise; SIGTTIN and SIGTTOU are the terminal's answer to one process
 * that reads or writes, and stop all of its group. */
static const int not_passed_on[] = {SIGSEGV, SIGBUS,  SIGILL,  SIGFPE,  SIGTRAP, SIGSYS,
                                    SIGABRT, SIGPIPE, SIGXFSZ, SIGTTIN, SIGTTOU};

static sigset_t signals_to_pass_on(void) {
  sigset_t set;
  sigfillset(&set);
  for (size_t i = 0; i < sizeof(not_passed_on) / sizeof(not_passed_on[0]); i++)
    sigdelset(&set, not_passed_on[i]);
  return set;
}

/* In the child: becomes the command, or tells the parent why not. */
static void become(char *const argv[], const sigset_t *mask, int report) {
  signal(SIGXFSZ, SIG_DFL); /* ignored in main.c, and that is not the command's affair */
  sigprocmask(SIG_SETMASK, mask, NULL);
  execvp(argv[0], argv);
  int reason = errno;
  ssize_t written = write(report, &reason, sizeof(reason));
  _exit(written == sizeof(reason) ? 127 : 126);
}

static void pass_on(pid_t child, const siginfo_t *info) {
  if (info->si_code == SI_QUEUE)
    sigqueue(child, info->si_signo, info->si_value);
  else
    kill(child, info->si_signo);
}

/* The shell waits for us, so we stop when the command is to, until somebody lets us go on. */
static void stop_too(void) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, NULL);
  sigprocmask(SIG_BLOCK, &stop, NULL);
}

/*
 * Waits for the child. Signals that are sent to us meanwhile go on to it, unless they were sent to the whole group
 * (Ctrl-C, a launcher that ends its job): then the child has got them itself.
 */
static int wait_and_pass_on(pid_t child, const struct sl_group_witness *witness, const sigset_t *signals) {
  static const struct timespec now = {0};
  int status = 0;
  siginfo_t info;
  for (;;) {
    pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child || (done < 0 && errno != EINTR))
      break;
    if (sigwaitinfo(signals, &info) < 0 || info.si_signo == SIGCHLD)
      continue;
    bool has_it = witness->process > 0 ? sl_group_witness_got(witness, info.si_signo) : info.si_code == SI_KERNEL;
    if (!has_it)
      pass_on(child, &info);
    if (info.si_signo == SIGTSTP)
      stop_too();
  }
  while (sigtimedwait(signals, NULL, &now) >
         0) /* What ended the command is not to end us: its status is still to tell. */
    ;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int sl_run_child(char *const argv[], bool *started) {
  int report[2] = {-1, -1};
  int reason = 0;
  *started = false;
  int status = 126;
  sigset_t signals = signals_to_pass_on(), mask;
  char *last = argv[0];
  for (char *const *argument = argv; *argument; argument++)
    last = *argument;

  sigprocmask(SIG_BLOCK, &signals, &mask);
  /* Before the command, so that no signal misses it, and before the pipe, which ends when the command holds no end. */
  struct sl_group_witness witness = sl_group_witness_start(last);
  if (pipe2(report, O_CLOEXEC) != 0) {
    sl_complain("run: %s can't be started: %s", argv[0], strerror(errno));
    goto finish;
  }
  signal(SIGCHLD, SIG_DFL); /* whoever started us may have had it ignored, and then there is no status to wait for */
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
    status = wait_and_pass_on(child, &witness, &signals);
    *started = length != sizeof(reason);
    if (!*started) {
      sl_complain("run: %s can't be started: %s", argv[0], strerror(reason));
      status = reason == ENOENT ? 127 : 126;
    }
  }
  close(report[0]);
finish:
  witness = sl_group_witness_end(witness);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return status;
}

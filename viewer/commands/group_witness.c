/* Tells whether a signal was sent to this process alone, by a second process in its group. */
#include "group_witness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS 50000000 /* between two processes that are sent a signal one after the other, as systemd does */
#define NONE ((struct sl_group_witness){-1, -1})

/* Whoever signals all processes of our name, as pkill does, means the command that we run: it has not got that signal,
 * so the witness must not have got it either. */
static void take_another_name(char *last_argument) {
  char *first = program_invocation_name;
  prctl(PR_SET_NAME, "group-witness");
  if (first <= last_argument) /* the arguments lie behind one another */
    memset(first, 0, (size_t)(last_argument - first) + strlen(last_argument));
}

/* It holds nothing open that somebody may wait for the end of. */
static void leave_streams(void) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
    if (null < 0 || dup2(null, stream) < 0)
      close(stream);
}

static void __attribute__((noreturn)) witness(int channel) {
  const struct timespec grace = {.tv_nsec = GRACE_NS};
  for (;;) {
    unsigned char asked, got;
    sigset_t set;
    if (recv(channel, &asked, 1, 0) != 1)
      _exit(0);
    sigemptyset(&set);
    sigaddset(&set, asked);
    got = sigtimedwait(&set, NULL, &grace) == asked;
    if (send(channel, &got, 1, MSG_NOSIGNAL) != 1)
      _exit(0);
  }
}

struct sl_group_witness sl_group_witness_start(char *last_argument) {
  int ends[2];
  sigset_t all, before;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return NONE;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  pid_t process = fork();
  if (process == 0) {
    close(ends[0]);
    take_another_name(last_argument);
    leave_streams();
    witness(ends[1]);
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  close(ends[1]);
  if (process < 0) {
    close(ends[0]);
    return NONE;
  }
  const struct timeval patience = {.tv_sec = 1}; /* with one that somebody has stopped */
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return (struct sl_group_witness){process, ends[0]};
}

bool sl_group_witness_got(const struct sl_group_witness *witness, int signal) {
  unsigned char asked = (unsigned char)signal, got = 0;
  return send(witness->channel, &asked, 1, MSG_NOSIGNAL) == 1 && recv(witness->channel, &got, 1, 0) == 1 && got;
}

struct sl_group_witness sl_group_witness_end(struct sl_group_witness witness) {
  if (witness.process > 0) {
    close(witness.channel);
    kill(witness.process, SIGKILL); /* for one that was stopped */
    while (waitpid(witness.process, NULL, 0) < 0 && errno == EINTR)
      ;
  }
  return NONE;
}

/* By the kernel's call and not pthread_sigmask, which lets signals through that the C library keeps for itself. */
#include "undisturbed.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(number) (UINT64_C(1) << ((number)-1))
/*
 * Faults, and glibc's own for a change of the user in all threads, which waits for each. Not its other one, for
 * cancelling at once: up to 2.36 its handler does not ask whether cancelling has been disabled since the signal was
 * sent.
 */
#define LET_THROUGH                                                                                                    \
  (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGSYS) | BIT(SIGABRT) | BIT(33))

void sl_undisturbed_begin(struct sl_undisturbed *before) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancellation);
  before->signals = 0;
  const uint64_t all = ~LET_THROUGH;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before->signals, sizeof(all));
}

void sl_undisturbed_end(const struct sl_undisturbed *before) {
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before->signals, NULL, sizeof(before->signals));
  pthread_setcancelstate(before->cancellation, NULL);
}

void sl_once_first(struct sl_once *once, void (*function)(void)) {
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  pthread_once(&once->once, function);
  atomic_store_explicit(&once->done, true, memory_order_release);
  sl_undisturbed_end(&before);
}

/*
 * A signal that our own write raised is taken back before it is let through; one that was pending already is the
 * host's.
 */
#include "held_signals.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>

static const int signals[] = {SIGPIPE, SIGXFSZ};
#define COUNT (sizeof(signals) / sizeof(*signals))

void sl_signals_hold(struct sl_held_signals *held) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < COUNT; i++)
    sigaddset(&set, signals[i]);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held->cancellation);
  sigpending(&held->pending);
  pthread_sigmask(SIG_BLOCK, &set, &held->before);
}

void sl_signals_release(const struct sl_held_signals *held, bool call_failed) {
  sigset_t raised;
  sigemptyset(&raised);
  for (size_t i = 0; i < COUNT; i++)
    if (!sigismember(&held->pending, signals[i]))
      sigaddset(&raised, signals[i]);
  if (call_failed)
    sigtimedwait(&raised, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &held->before, NULL);
  pthread_setcancelstate(held->cancellation, NULL);
}

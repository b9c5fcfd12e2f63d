/*
 * A program under ThreadSanitizer that records through the library as it is built, without a sanitizer: threads that
 * come and go, names, ranges, full segments. ThreadSanitizer ends it with 66 when it has something to report.
 */
#include "plugin/shardledger.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 6, THREADS = 4, RANGES = 12000, NAMES = 500 };

static void *work(void *number) {
  for (unsigned i = 0; i < RANGES; i++) {
    char name[32];
    snprintf(name, sizeof(name), "%u of thread %u", i % NAMES, *(unsigned *)number);
    sl_range_push(15, name, i);
    sl_range_pop();
    if (i % 64 == 0)
      usleep(100);
  }
  return NULL;
}

int main(void) {
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[THREADS];
    unsigned numbers[THREADS] = {0, 1, 2, 3};
    for (int i = 0; i < THREADS; i++)
      pthread_create(&threads[i], NULL, work, &numbers[i]);
    for (int i = 0; i < THREADS; i++)
      pthread_join(threads[i], NULL);
  }
  return 0;
}

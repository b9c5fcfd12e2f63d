#include "step_window.h"

#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t first, end = UINT64_MAX;                    /* steps first … end - 1 */
static atomic_uint_fast64_t from_ns, until_ns = UINT64_MAX; /* when they ran, as far as is known */

static void read_option(void) {
  const char *text = sl_option_text(SL_OPTION_steps); /* "A:B", checked by config.c, or "" */
  if (!*text)
    return;
  char *colon;
  first = strtoull(text, &colon, 10);
  end = strtoull(colon + 1, NULL, 10);
  if (first > 0)
    atomic_store_explicit(&from_ns, UINT64_MAX, memory_order_relaxed);
}

void sl_step_window_begin(uint64_t step, uint64_t at_ns) {
  pthread_once(&once, read_option);
  uint64_t unset = UINT64_MAX;
  if (step >= first)
    atomic_compare_exchange_strong_explicit(&from_ns, &unset, at_ns, memory_order_relaxed, memory_order_relaxed);
  unset = UINT64_MAX;
  if (step >= end)
    atomic_compare_exchange_strong_explicit(&until_ns, &unset, at_ns, memory_order_relaxed, memory_order_relaxed);
}

bool sl_step_window_has(uint64_t at_ns) {
  pthread_once(&once, read_option);
  return at_ns >= atomic_load_explicit(&from_ns, memory_order_relaxed) &&
         at_ns < atomic_load_explicit(&until_ns, memory_order_relaxed);
}

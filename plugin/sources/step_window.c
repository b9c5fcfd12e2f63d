/* The answer is one flag, which is set where a step begins: who asks on a hot path reads that alone. */
#include "step_window.h"

#include "plugin/process/config.h"
#include "plugin/process/undisturbed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sl_once once = SL_ONCE_INIT;
static uint64_t first, end = UINT64_MAX; /* steps first … end - 1 */
static uint64_t every = 1;               /* after the first ones, one step of so many */
static char words[128];
static atomic_bool open_now;

static bool wants(uint64_t step) {
  return step >= first && step < end && (every == 1 || step < SL_TIMED_FIRST_STEPS || step % every == 0);
}

static void read_option(void) {
  const char *text = sl_option_text(SL_OPTION_steps); /* auto, all or "A:B", checked by config.c */
  if (strcmp(text, "auto") == 0) {
    every = SL_TIMED_EVERY;
    snprintf(words, sizeof(words), "in steps 0 to %d and in every %dth; SHARDLEDGER_STEPS=all times every step",
             SL_TIMED_FIRST_STEPS - 1, SL_TIMED_EVERY);
  } else if (strcmp(text, "all") != 0) {
    char *colon;
    first = strtoull(text, &colon, 10);
    end = strtoull(colon + 1, NULL, 10);
    snprintf(words, sizeof(words), "in the steps of SHARDLEDGER_STEPS=%.60s", text);
  }
  atomic_store(&open_now, wants(0));
}

bool sl_step_window_begin(uint64_t step) {
  sl_once(&once, read_option);
  bool wanted = wants(step);
  return atomic_exchange(&open_now, wanted) != wanted; /* in one order with the state of who follows it */
}

bool sl_step_window_open(void) {
  sl_once(&once, read_option);
  return atomic_load(&open_now);
}

const char *sl_step_window_words(void) {
  sl_once(&once, read_option);
  return words;
}

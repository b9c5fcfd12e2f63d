/* The capture sources, in starting order. A new source is one file and one line here. */
#include "source.h"

#include "plugin/log/event_log.h"
#include "plugin/log/log_helper.h"
#include "plugin/process/config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

extern const struct sl_source sl_source_cupti_callback, sl_source_cupti_activity, sl_source_device;

/* NVTX is not here: each library that uses it attaches by itself, through InitializeInjectionNvtx2. */
const struct sl_source *const sl_sources[] = {&sl_source_cupti_callback, &sl_source_cupti_activity, &sl_source_device,
                                              NULL};

#define SOURCES_MAX (sizeof(sl_sources) / sizeof(sl_sources[0]))
static atomic_bool running[SOURCES_MAX];

static void tick(void) {
  for (size_t i = 0; sl_sources[i]; i++)
    if (running[i] && sl_sources[i]->tick)
      sl_sources[i]->tick();
}

static void end(void) {
  for (size_t i = 0; sl_sources[i]; i++)
    if (running[i] && sl_sources[i]->flush)
      sl_sources[i]->flush();
  for (size_t i = 0; sl_sources[i]; i++)
    if (atomic_exchange(&running[i], false) && sl_sources[i]->stop)
      sl_sources[i]->stop();
}

/* A child that was forked before the first event may have a log of its own, but no CUPTI: that would hang there. */
static void after_fork_in_child(void) {
  for (size_t i = 0; i < SOURCES_MAX; i++)
    running[i] = false;
}

void sl_sources_start(void) {
  static atomic_bool started;
  if (atomic_exchange(&started, true))
    return;
  pthread_atfork(NULL, NULL, after_fork_in_child);
  sl_log_on_tick(tick);
  sl_log_on_end(end);
  for (size_t i = 0; sl_sources[i]; i++) {
    int r = sl_sources[i]->start ? sl_sources[i]->start() : 0;
    running[i] = r == 0;
    if (r < 0)
      sl_debug("source %s did not start: %s", sl_sources[i]->name, strerror(-r));
  }
}

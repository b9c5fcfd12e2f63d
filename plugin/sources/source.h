/*
 * A capture source: one file, one struct of optional callbacks, one entry in sources.c.
 *
 * A source reports its own state with sl_source_state(name, "on" | "off" | "failed", reason), so the reason is told
 * where it is known. Its failure never stops another source.
 */
#ifndef SHARDLEDGER_SOURCE_H
#define SHARDLEDGER_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct sl_source {
  const char *name;    /* as in source_state events: cupti_callback, nvtx, … */
  int (*start)(void);  /* once, inside cuInit; 0 or a negative errno, after which nothing else of it is called */
  void (*tick)(void);  /* about once a second, on the helper thread */
  void (*flush)(void); /* once at the orderly end, on the helper thread, before any stop: hand over finished records */
  void (*stop)(void);  /* once at the orderly end, on the helper thread: no callback may arrive afterwards */
};

/* The sources, in starting order; NULL ends the list. */
extern const struct sl_source *const sl_sources[];

/*
 * Starts every source, once per process; later calls do nothing. From then on the helper thread ticks them, and
 * sl_log_end flushes and stops them.
 */
void sl_sources_start(void);

/* What the public API asks of single sources; see shardledger.h. */
void sl_source_device_sample(void);       /* by the driver, in the calling thread's context */
void sl_source_device_changed(void);      /* the driver gave or took memory, or loaded code */
bool sl_source_device_is_due(void);       /* since the last sample something changed, or a second went by */
void sl_source_cupti_times_changed(void); /* step_window.h's answer: on the thread whose step begins */

/*
 * Records each kernel launch on whose thread in_operator() is 0, until the next call; NULL: none. false: launches are
 * not seen, as CUPTI is not ours.
 */
bool sl_source_cupti_launches(int (*in_operator)(void));

int sl_source_cupti_release(void);
int sl_source_cupti_reacquire(void);

#endif

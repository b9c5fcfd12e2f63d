/*
 * The windows in which a tracker looks for a module's highest point. Every sum that snapshots show has its own ones,
 * since each is highest at an instant of its own.
 */
#ifndef SHARDLEDGER_WINDOWS_H
#define SHARDLEDGER_WINDOWS_H

#include "item.h"
#include "maxima.h"

struct sl_windows { /* zero, but for maxima.sample_bytes: no window is open */
  struct sl_maxima maxima;
  struct windows_of *by_key; /* owned */
  struct window *newest;     /* owned */
};

/* The item opens a window, and must stay until that is closed. value, sample: as for maxima. 0 or -ENOMEM. */
int sl_windows_open(struct sl_windows *windows, const struct sl_item *item, uint64_t value, const void *sample);

void sl_windows_raise(struct sl_windows *windows, uint64_t value, const void *sample);

/*
 * Closes the newest window of the item's module and state; item NULL: the newest of all. Returns the item that opened
 * it, and copies the sample of its highest point. NULL: none is open.
 */
const struct sl_item *sl_windows_close(struct sl_windows *windows, const struct sl_item *item, void *sample);

void sl_windows_clear(struct sl_windows *windows); /* closes all, and gives their memory back */

#endif

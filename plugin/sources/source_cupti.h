/*
 * What the two CUPTI sources know of each other. Callbacks come first: CUPTI has one subscriber per process, and only
 * the one who holds that seat may record activity, or both tools lose their records.
 */
#ifndef SHARDLEDGER_SOURCE_CUPTI_H
#define SHARDLEDGER_SOURCE_CUPTI_H

#include "plugin/driver/cupti_loader.h"

#include <stdbool.h>

/* CUPTI when this library has the subscriber's seat, else NULL. */
const struct sl_cupti *sl_cupti_seat(void);

/*
 * Subscribes and enables callbacks; gives the seat up. Both report the source's state, leave only with a reason: at the
 * orderly end what was recorded stays "on". Not from inside a callback.
 */
int sl_cupti_seat_take(const struct sl_cupti *cupti);
void sl_cupti_seat_leave(const struct sl_cupti *cupti, const char *reason);

#endif

/* Checks which steps a change is asked for. */
#include "change_steps.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int sl_change_steps_check(const struct sl_tape *tape, int64_t first, int64_t last, struct sl_error *error) {
  for (size_t i = 0; i < tape->period_count; i++) {
    const struct sl_tape_period *p = &tape->periods[i];
    const struct sl_tape_period *same = p->same_as < 0 ? NULL : sl_tape_period_find(tape, p->same_as);
    if (same && strcmp(p->kind, "step") == 0 &&
        (p->step >= first && p->step <= last) != (same->step >= first && same->step <= last))
      return sl_error_set(error, -ENOTSUP,
                          "step %" PRId64 " is stored as one with step %" PRId64
                          ", which is to be changed differently: "
                          "'shardledger ingest --keep all' stores both",
                          p->step, same->step);
  }
  return 0;
}

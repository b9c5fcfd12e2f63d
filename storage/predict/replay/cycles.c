/* Finds the step from which on the allocator repeats itself. */
#include "cycles.h"

#include <stdlib.h>

struct seen { /* where a period that others repeat was played for one of them last */
  uint64_t signature;
  size_t period; /* 1 + index; 0: never */
};

struct sl_cycles {
  const struct sl_tape *tape;
  struct seen *seen; /* of each period */
};

struct sl_cycles *sl_cycles_new(const struct sl_tape *tape) {
  struct sl_cycles *cycles = calloc(1, sizeof *cycles);
  if (!cycles)
    return NULL;
  cycles->tape = tape;
  cycles->seen = calloc(tape->period_count + 1, sizeof *cycles->seen);
  return cycles->seen ? cycles : sl_cycles_free(cycles);
}

struct sl_cycles *sl_cycles_free(struct sl_cycles *cycles) {
  if (cycles)
    free(cycles->seen);
  free(cycles);
  return NULL;
}

bool sl_cycles_is_pure(const struct sl_tape *tape, size_t period) {
  const struct sl_tape_period *p = &tape->periods[period];
  return p->same_as >= 0 && p->first == p->end;
}

/* Whether a period does what another one did. */
static bool is_same(const struct sl_tape *tape, size_t one, size_t other) {
  return sl_cycles_is_pure(tape, one) && sl_cycles_is_pure(tape, other) &&
         tape->periods[one].same_as == tape->periods[other].same_as;
}

size_t sl_cycles_skip(struct sl_cycles *cycles, size_t period, uint64_t signature, size_t *length) {
  const struct sl_tape *tape = cycles->tape;
  const struct sl_tape_period *template = sl_tape_period_find(tape, tape->periods[period].same_as);
  if (!template)
    return 0;
  struct seen *seen = &cycles->seen[template - tape->periods];
  size_t skipped = 0;
  if (seen->period && seen->signature == signature) {
    *length = period - (seen->period - 1);
    size_t same = 0;
    while (period + same < tape->period_count && is_same(tape, period + same, period + same - *length))
      same++;
    skipped = same / *length * *length; /* whole ones, after which all is as it is now */
  }
  /* The latest of those that stand for them. */
  *seen = (struct seen){signature, period + skipped - (skipped ? *length : 0) + 1};
  return skipped;
}

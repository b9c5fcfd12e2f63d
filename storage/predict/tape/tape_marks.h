/* When a rank cleared gradients and ran backward, in its steps. */
#ifndef SHARDLEDGER_TAPE_MARKS_H
#define SHARDLEDGER_TAPE_MARKS_H

#include "storage/tables/db.h"
#include "tape.h"

struct sl_tape_mark {
  int64_t step;
  bool is_backward; /* else zero_grad */
  uint64_t start_ns, end_ns;
};

struct sl_tape_marks {
  struct sl_tape_mark *items; /* by time */
  size_t count;
};

/* Of a rank; free its items with free. 0 or a negative errno, with the sentence in error. */
int sl_tape_marks(struct sl_db *db, uint32_t rank, struct sl_tape_marks *out, struct sl_error *error);

/* How often a step ran backward; the last one, NULL: none. */
size_t sl_tape_backwards(const struct sl_tape_marks *marks, int64_t step, const struct sl_tape_mark **last);

#endif

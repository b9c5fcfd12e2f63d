/* What each rank's highest step consists of, by category, for ranks whose peaks are equally high. */
#ifndef SHARDLEDGER_RANK_PEAK_PARTS_H
#define SHARDLEDGER_RANK_PEAK_PARTS_H

#include "storage/tables/db.h"

#include <stddef.h>
#include <stdint.h>

struct sl_peak_part {
  uint32_t rank;
  int64_t period;
  int64_t place;    /* of the peak: where it is the same number, it is the same phase of the same module */
  int64_t category; /* numbered, upwards */
  int64_t bytes;
};

/* Zero-initialise; free with sl_peak_parts_free. */
struct sl_peak_parts {
  struct sl_peak_part *parts; /* ranks upwards; owned */
  size_t count;
};

/* Of the highest step, or of the highest period of a rank without steps. 0 or a negative errno. */
int sl_peak_parts_read(struct sl_db *db, struct sl_peak_parts *out, struct sl_error *error);
void sl_peak_parts_free(struct sl_peak_parts *parts);

/*
 * By how much the second rank has more (or less) of the category that differs most, at a peak that is at the same place
 * and as high; bytes 0: they consist of the same, or don't compare.
 */
struct sl_parts_difference {
  int64_t bytes, category, period, base_period;
};
struct sl_parts_difference sl_peak_parts_compare(const struct sl_peak_parts *parts, uint32_t base_rank, uint32_t rank,
                                                 int64_t noise);

#endif

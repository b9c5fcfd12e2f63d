/* Compares what the ranks' highest steps consist of. */
#include "rank_peak_parts.h"

#include "rank_tolerance.h"
#include "storage/grow.h"
#include "storage/tables/sql_text.h"

#include <stdbool.h>
#include <stdlib.h>

int sl_peak_parts_read(struct sl_db *db, struct sl_peak_parts *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  *out = (struct sl_peak_parts){0};
  int r = sl_db_prepare(db, sl_rank_peak_parts_sql, &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    struct sl_peak_part *added = SL_LIST_ADD(out->parts, out->count);
    if (!added) {
      r = sl_no_memory(error);
      break;
    }
    *added = (struct sl_peak_part){
        .rank = (uint32_t)sl_column_int(row, 0),
        .period = sl_column_int(row, 1),
        .place = sl_column_int(row, 2),
        .category = sl_column_int(row, 3),
        .bytes = sl_column_int(row, 4),
    };
  }
  row = sl_statement_close(row);
  if (r < 0)
    sl_peak_parts_free(out);
  return r;
}

void sl_peak_parts_free(struct sl_peak_parts *parts) {
  free(parts->parts);
  *parts = (struct sl_peak_parts){0};
}

struct range {
  const struct sl_peak_part *begin, *end;
  int64_t bytes;
};

static struct range parts_of(const struct sl_peak_parts *parts, uint32_t rank) {
  size_t low = 0, high = parts->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (parts->parts[middle].rank < rank)
      low = middle + 1;
    else
      high = middle;
  }
  struct range range = {parts->parts + low, parts->parts + low, 0};
  for (; range.end < parts->parts + parts->count && range.end->rank == rank; range.end++)
    range.bytes += range.end->bytes;
  return range;
}

struct sl_parts_difference sl_peak_parts_compare(const struct sl_peak_parts *parts, uint32_t base_rank, uint32_t rank,
                                                 int64_t noise) {
  struct range x = parts_of(parts, base_rank), y = parts_of(parts, rank);
  struct sl_parts_difference most = {0};
  const int64_t tolerance = sl_tolerance(x.bytes, noise);
  if (x.begin == x.end || y.begin == y.end || x.begin->place != y.begin->place || llabs(y.bytes - x.bytes) > tolerance)
    return most;
  most.base_period = x.begin->period;
  most.period = y.begin->period;
  while (x.begin < x.end || y.begin < y.end) {
    const bool has_x = x.begin < x.end && (y.begin == y.end || x.begin->category <= y.begin->category);
    const bool has_y = y.begin < y.end && (x.begin == x.end || y.begin->category <= x.begin->category);
    const int64_t category = has_x ? x.begin->category : y.begin->category;
    const int64_t bytes = (has_y ? y.begin->bytes : 0) - (has_x ? x.begin->bytes : 0);
    if (llabs(bytes) > tolerance && llabs(bytes) > llabs(most.bytes)) {
      most.bytes = bytes;
      most.category = category;
    }
    x.begin += has_x;
    y.begin += has_y;
  }
  return most;
}

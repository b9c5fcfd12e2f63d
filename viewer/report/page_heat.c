/*
 * What was allocated at the peak of each step of each rank, small enough for a page of thousands of them.
 *
 * A series has a number for each column: one step, or of a long run as many neighbours as keep it at COLUMNS_MOST, of
 * which the highest counts. Numbers are bytes + 1, or 0 where the rank has no such step, each as what it is more than
 * the one before; signed, as page_timeline.c writes them. Ranks whose figures are the same share a series.
 *
 *   "heat": {"steps": [[first, last of a column]…], "ranks": [[rank, where its series begins among the samples]…]}
 */
#include "report/page.h"
#include "storage/grow.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MOST = 500 };

struct heat {
  struct sl_page *page;
  int64_t *steps; /* of any rank, in order */
  size_t step_count;
  size_t each;  /* steps in a column */
  int64_t *row; /* of the rank at hand: bytes + 1 of each column */
  struct sl_shared_samples series;
  bool has_ranks; /* one is written */
};

static int read_steps(struct heat *h, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(h->page->db, sl_sql_heat_steps, NULL, &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    int64_t *added = SL_LIST_ADD(h->steps, h->step_count);
    if (!added) {
      r = sl_no_memory(error);
      break;
    }
    *added = sl_column_int(row, 0);
  }
  row = sl_statement_close(row);
  h->each = h->step_count / COLUMNS_MOST + (h->step_count % COLUMNS_MOST != 0);
  return r < 0 ? r : 0;
}

static size_t columns(const struct heat *h) {
  return h->each ? (h->step_count + h->each - 1) / h->each : 0;
}

static int write_rank(struct heat *h, int64_t rank, struct sl_error *error) {
  struct sl_bytes bytes = {0};
  size_t offset = 0;
  int64_t before = 0;
  for (size_t i = 0; i < columns(h); i++) {
    sl_bytes_add_signed(&bytes, h->row[i] - before);
    before = h->row[i];
    h->row[i] = 0;
  }
  int r = bytes.failed ? -ENOMEM : sl_page_share(h->page, &h->series, &bytes, &offset);
  sl_bytes_free(&bytes);
  if (r < 0)
    return sl_no_memory(error);
  fprintf(h->page->json, "%s[%" PRId64 ",%zu]", h->has_ranks ? "," : "", rank, offset);
  h->has_ranks = true;
  return 0;
}

/* Rows come by rank and step, as h->steps are sorted. */
static int write_ranks(struct heat *h, struct sl_error *error) {
  struct sl_statement *row = NULL;
  size_t step = 0;
  int64_t rank = -1;
  int r = sl_db_ask(h->page->db, sl_sql_heat_peaks, NULL, &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    if (sl_column_int(row, 0) != rank) {
      if (rank >= 0 && (r = write_rank(h, rank, error)) < 0)
        break;
      rank = sl_column_int(row, 0);
      step = 0;
    }
    while (step + 1 < h->step_count && h->steps[step] < sl_column_int(row, 1))
      step++;
    int64_t *cell = &h->row[step / h->each], peak = sl_column_int(row, 2);
    if (peak >= 0 && peak < INT64_MAX && peak + 1 > *cell)
      *cell = peak + 1;
  }
  row = sl_statement_close(row);
  return r == 0 && rank >= 0 ? write_rank(h, rank, error) : r;
}

int sl_page_heat(struct sl_page *page, struct sl_error *error) {
  struct heat h = {.page = page};
  int r = read_steps(&h, error);
  h.row = r == 0 ? calloc(columns(&h) + 1, sizeof(*h.row)) : NULL;
  if (r == 0 && !h.row)
    r = sl_no_memory(error);
  fputs(",\"heat\":{\"steps\":[", page->json);
  for (size_t i = 0; r == 0 && i < columns(&h); i++) {
    const size_t last = (i + 1) * h.each;
    fprintf(page->json, "%s[%" PRId64 ",%" PRId64 "]", i ? "," : "", h.steps[i * h.each],
            h.steps[(last < h.step_count ? last : h.step_count) - 1]);
  }
  fputs("],\"ranks\":[", page->json);
  if (r == 0 && h.step_count)
    r = write_ranks(&h, error);
  fputs("]}", page->json);
  free(h.steps);
  free(h.row);
  free(h.series.list);
  return r;
}

/* What the parts of a report's data share: a buffer, the progress, the ranks with their clocks. */
#include "report/page.h"

#include "output/terminal.h"
#include "storage/tables/db.h"
#include "viewer_sql.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void sl_bytes_add(struct sl_bytes *bytes, const void *data, size_t size) {
  if (bytes->failed)
    return;
  if (bytes->size + size > bytes->room) {
    size_t room = (bytes->size + size) * 2;
    uint8_t *more = realloc(bytes->data, room);
    if (!more) {
      bytes->failed = true;
      return;
    }
    bytes->data = more;
    bytes->room = room;
  }
  if (size)
    memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
}

void sl_bytes_free(struct sl_bytes *bytes) {
  free(bytes->data);
  *bytes = (struct sl_bytes){0};
}

void sl_page_progress(struct sl_page *page, int64_t rows) {
  static const int64_t between = 1 << 15; /* rows between two looks at the terminal */
  int64_t before = page->rows_done / between;
  page->rows_done += rows;
  if (page->rows_done / between != before)
    sl_progress_show_count("reading", (uint64_t)page->rows_done, (uint64_t)page->rows, "rows");
}

int sl_page_each_rank(struct sl_page *page, sl_page_rank *write, void *context, struct sl_error *error) {
  struct sl_statement *ranks = NULL;
  int r = sl_db_ask(page->db, sl_sql_page_clocks, SL_WITH(SL_NUMBER(":first", page->first_ns)), &ranks, error);
  if (r < 0)
    return r;
  while (r == 0 && (r = sl_statement_step(ranks, error)) > 0)
    r = write(page, sl_column_int(ranks, 0), sl_column_int(ranks, 1), context, error);
  ranks = sl_statement_close(ranks);
  return r;
}

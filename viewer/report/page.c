/* What the parts of a report's data share: a buffer, the progress, the ranks with their clocks. */
#include "report/page.h"

#include "commands/oom_death.h"
#include "output/terminal.h"
#include "output/text.h"
#include "storage/grow.h"
#include "storage/memory_file.h"
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

void sl_bytes_add_number(struct sl_bytes *bytes, uint64_t value) {
  uint8_t coded[10];
  size_t size = 0;
  do {
    coded[size] = (uint8_t)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);
    value >>= 7;
    size++;
  } while (value);
  sl_bytes_add(bytes, coded, size);
}

void sl_bytes_add_signed(struct sl_bytes *bytes, int64_t value) {
  sl_bytes_add_number(bytes, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

uint64_t sl_bytes_hash(const struct sl_bytes *bytes) {
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  for (size_t i = 0; i < bytes->size; i++)
    hash = (hash ^ bytes->data[i]) * 0x100000001b3u;
  return hash;
}

int sl_page_share(struct sl_page *page, struct sl_shared_samples *shared, const struct sl_bytes *bytes,
                  size_t *offset) {
  const uint64_t hash = sl_bytes_hash(bytes);
  for (size_t i = shared->count; i-- > 0;) { /* most repeat what came just before */
    const struct sl_shared_run *run = &shared->list[i];
    if (run->hash == hash && run->size == bytes->size &&
        memcmp(page->samples.data + run->offset, bytes->data, bytes->size) == 0) {
      *offset = run->offset;
      return 0;
    }
  }
  struct sl_shared_run *added = SL_LIST_ADD(shared->list, shared->count);
  if (!added)
    return -ENOMEM;
  *offset = page->samples.size;
  *added = (struct sl_shared_run){hash, *offset, bytes->size};
  sl_bytes_add(&page->samples, bytes->data, bytes->size);
  return page->samples.failed ? -ENOMEM : 0;
}

void sl_page_progress(struct sl_page *page) {
  static const int64_t between = 1 << 15; /* rows between two looks at the terminal */
  if (++page->rows_done % between == 0)
    sl_progress_show_count("reading", (uint64_t)page->rows_done, (uint64_t)page->rows);
}

int sl_page_begin(struct sl_page *page, struct sl_error *error) {
  int r = sl_add_requests(page->db, error);
  if (r == 0)
    r = sl_db_tell(page->db, sl_sql_page_clocks, NULL, error);
  if (r == 0)
    r = sl_db_tell(page->db, sl_sql_page_drawn, SL_WITH(SL_RANKS(&page->ranks)), error);
  if (r == 0)
    r = sl_db_int(page->db, sl_sql_page_drawn_count, &page->drawn, error);
  if (r == 0)
    r = sl_db_int(page->db, sl_sql_page_first_instant, &page->first_ns, error);
  return r == 0 ? sl_db_int(page->db, sl_sql_page_rows, &page->rows, error) : r;
}

int sl_page_said(struct sl_page *page, const char *name, enum sl_format format, sl_page_print *print, void *context,
                 struct sl_error *error) {
  struct sl_output out = {.format = format};
  struct sl_memory_file memory;
  int r = 0;
  out.file = sl_memory_file_open(&memory);
  if (!out.file)
    return sl_no_memory(error);
  if (format == SL_FORMAT_json)
    sl_output_document(&out);
  r = print(page, &out, context, error);
  const int failed = sl_output_close(&out);
  char *text = sl_memory_file_close(&memory, NULL);
  if (!text || failed < 0)
    r = r < 0 ? r : sl_no_memory(error);
  if (r == 0) {
    fprintf(page->json, ",\"%s\":", name);
    if (format == SL_FORMAT_json)
      fputs(text, page->json);
    else
      sl_json_text(page->json, text);
  }
  free(text);
  return r;
}

int sl_page_each_rank(struct sl_page *page, bool is_drawn, sl_page_rank *write, void *context, struct sl_error *error) {
  struct sl_statement *ranks = NULL;
  int r = sl_db_ask(page->db, sl_sql_page_each_rank,
                    SL_WITH(SL_NUMBER(":first", page->first_ns), SL_NUMBER(":drawn", is_drawn)), &ranks, error);
  if (r < 0)
    return r;
  while (r == 0 && (r = sl_statement_step(ranks, error)) > 0)
    r = write(page, sl_column_int(ranks, 0), sl_column_int(ranks, 1), context, error);
  ranks = sl_statement_close(ranks);
  return r;
}

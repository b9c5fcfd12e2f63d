/*
 * Where in the code memory was asked for, at the moments that the page can show: the highest point of each period,
 * refused requests, and growth. Texts, frames and sites are there once, also where several ranks have them, and only
 * those that such a moment needs.
 *
 *   "code": {"moments": [[rank, kind, number, start, at, bytes, step, place, other, site, offset]…],
 *            "modules": [id…], "texts": [text…],
 *            "frames": [[caller, file, line, function, whose code]…], "sites": [[frame, line, operator, stack of]…]}
 *
 * Frames, sites and modules are numbers in these lists, -1 for none; words are numbers in "texts". offset says where a
 * moment's rows begin among the samples, -1: they are not in the page. There, all as LEB128:
 *
 *   count; then for each row: site + 1, category, module + 1, bytes, allocations
 */
#include "output/text.h"
#include "report/page.h"
#include "storage/hash_table.h"
#include "storage/tables/db.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 60000 }; /* of all moments together; some 300 KB of page */

/* Things that have numbers, in the order in which they came. */
struct numbered {
  UT_hash_handle hh;
  int64_t number;
  size_t size;
  char key[]; /* text with its end, or numbers */
};

struct code {
  struct sl_page *page;
  struct numbered *texts, *modules, *frames, *sites; /* what the page has */
  struct numbered *frame_ids, *site_ids;             /* of the ledger: {id, number in frames or sites} */
  struct numbered *row_sets;                         /* {hash of the rows, offset} */
  struct sl_statement *rows, *site, *stack;
  int64_t count; /* of moments */
};

/* The number of a key, which it gets when it is new: the next one. -1: no memory. */
static int64_t number_of(struct numbered **all, const void *key, size_t size) {
  struct numbered *found = NULL;
  HASH_FIND(hh, *all, key, size, found);
  if (found)
    return found->number;
  found = calloc(1, sizeof(*found) + size);
  if (!found)
    return -1;
  found->number = (int64_t)HASH_COUNT(*all);
  found->size = size;
  memcpy(found->key, key, size);
  HASH_ADD_KEYPTR(hh, *all, found->key, size, found);
  if (!SL_HASH_FAILED(found))
    return found->number;
  free(found);
  return -1;
}

static int64_t text_number(struct code *c, const char *text) {
  return number_of(&c->texts, text, strlen(text) + 1);
}

/* What a ledger's id became, or -1. */
static int64_t known_id(struct numbered *ids, int64_t id) {
  struct numbered *found = NULL;
  HASH_FIND(hh, ids, &id, sizeof(id), found);
  return found ? found->number : -1;
}

static int know_id(struct numbered **ids, int64_t id, int64_t number) {
  struct numbered *found = NULL;
  if (number < 0 || number_of(ids, &id, sizeof(id)) < 0)
    return -ENOMEM;
  HASH_FIND(hh, *ids, &id, sizeof(id), found);
  found->number = number;
  return 0;
}

/* ---- frames and sites ---- */

/* The frames of a stack, the outermost first; -ENOMEM without a sentence. */
static int add_stack(struct code *c, int64_t frame, struct sl_error *error) {
  int64_t caller = -1;
  int r = 0;
  sl_statement_reset(c->stack);
  sl_bind_named_int(c->stack, ":frame", frame);
  while ((r = sl_statement_step(c->stack, error)) > 0) {
    const int64_t id = sl_column_int(c->stack, 0);
    const int64_t key[] = {caller, text_number(c, sl_column_text(c->stack, 1)), sl_column_int(c->stack, 2),
                           text_number(c, sl_column_text(c->stack, 3)), text_number(c, sl_column_text(c->stack, 4))};
    caller = key[1] < 0 || key[3] < 0 || key[4] < 0 ? -1 : number_of(&c->frames, key, sizeof(key));
    if (caller < 0 || (known_id(c->frame_ids, id) < 0 && know_id(&c->frame_ids, id, caller) < 0))
      return sl_no_memory(error);
  }
  return r;
}

/* The number of a ledger's site; -1 for one that is not there. */
static int site_number(struct code *c, int64_t id, int64_t *out, struct sl_error *error) {
  *out = known_id(c->site_ids, id);
  if (*out >= 0)
    return 0;
  sl_statement_reset(c->site);
  sl_bind_named_int(c->site, ":site", id);
  int r = sl_statement_step(c->site, error);
  if (r <= 0)
    return r;
  const int64_t frame = sl_column_int(c->site, 0), line = sl_column_int(c->site, 1);
  if (frame && known_id(c->frame_ids, frame) < 0 && (r = add_stack(c, frame, error)) < 0)
    return r;
  const int64_t key[] = {known_id(c->frame_ids, frame), known_id(c->frame_ids, line),
                         text_number(c, sl_column_text(c->site, 2)), text_number(c, sl_column_text(c->site, 3))};
  *out = key[2] < 0 || key[3] < 0 ? -1 : number_of(&c->sites, key, sizeof(key));
  return know_id(&c->site_ids, id, *out) < 0 ? sl_no_memory(error) : 0;
}

/* ---- moments ---- */

static int add_row(struct code *c, struct sl_bytes *bytes, struct sl_error *error) {
  int64_t site = -1, module = -1;
  const int64_t category = text_number(c, sl_column_text(c->rows, 1)), id = sl_column_int(c->rows, 2);
  int r = sl_column_is_null(c->rows, 0) ? 0 : site_number(c, sl_column_int(c->rows, 0), &site, error);
  if (r < 0)
    return r;
  if (category < 0 || (!sl_column_is_null(c->rows, 2) && (module = number_of(&c->modules, &id, sizeof(id))) < 0))
    return sl_no_memory(error);
  sl_bytes_add_number(bytes, (uint64_t)(site + 1));
  sl_bytes_add_number(bytes, (uint64_t)category);
  sl_bytes_add_number(bytes, (uint64_t)(module + 1));
  sl_bytes_add_number(bytes, (uint64_t)sl_column_int(c->rows, 3));
  sl_bytes_add_number(bytes, (uint64_t)sl_column_int(c->rows, 4));
  sl_page_progress(c->page);
  return bytes->failed ? sl_no_memory(error) : 0;
}

/* Where rows like these begin; adds them when they are new. */
static int hold_rows(struct code *c, const struct sl_bytes *bytes, int64_t *offset) {
  struct sl_bytes *samples = &c->page->samples;
  const int64_t key[] = {(int64_t)sl_bytes_hash(bytes), (int64_t)bytes->size};
  struct numbered *found = NULL;
  HASH_FIND(hh, c->row_sets, key, sizeof(key), found);
  if (found && memcmp(samples->data + found->number, bytes->data, bytes->size) == 0) {
    *offset = found->number;
    return 0;
  }
  *offset = (int64_t)samples->size;
  sl_bytes_add(samples, bytes->data, bytes->size);
  if (samples->failed || number_of(&c->row_sets, key, sizeof(key)) < 0)
    return -ENOMEM;
  HASH_FIND(hh, c->row_sets, key, sizeof(key), found);
  found->number = *offset;
  return 0;
}

static int add_rows(struct code *c, int64_t rank, const char *kind, int64_t number, int64_t *offset,
                    struct sl_error *error) {
  struct sl_bytes rows = {0}, whole = {0};
  uint64_t count = 0;
  int r = 0;
  sl_statement_reset(c->rows);
  sl_bind_named_int(c->rows, ":rank", rank);
  sl_bind_named_text(c->rows, ":kind", kind);
  sl_bind_named_int(c->rows, ":number", number);
  for (; (r = sl_statement_step(c->rows, error)) > 0; count++)
    if ((r = add_row(c, &rows, error)) < 0)
      break;
  sl_bytes_add_number(&whole, count);
  sl_bytes_add(&whole, rows.data, rows.size);
  if (r == 0 && (whole.failed || hold_rows(c, &whole, offset) < 0))
    r = sl_no_memory(error);
  sl_bytes_free(&rows);
  sl_bytes_free(&whole);
  return r;
}

static void write_number(FILE *json, struct sl_statement *row, int column) {
  if (sl_column_is_null(row, column))
    fputs(",null", json);
  else
    fprintf(json, ",%" PRId64, sl_column_int(row, column));
}

static int write_moment(struct code *c, int64_t rank, struct sl_statement *row, int64_t offset,
                        struct sl_error *error) {
  enum { KIND, NUMBER, START = 4, PLACE = 8, OTHER, SITE };
  FILE *json = c->page->json;
  int64_t site = -1;
  int r = sl_column_is_null(row, SITE) ? 0 : site_number(c, sl_column_int(row, SITE), &site, error);
  fprintf(json, "%s[%" PRId64 ",\"%s\"", c->count++ ? ",\n" : "", rank, sl_column_text(row, KIND));
  write_number(json, row, NUMBER);
  for (int i = START; i < PLACE; i++)
    write_number(json, row, i);
  fputc(',', json);
  if (sl_column_is_null(row, PLACE))
    fputs("null", json);
  else
    sl_json_text(json, sl_column_text(row, PLACE));
  write_number(json, row, OTHER);
  fprintf(json, ",%" PRId64 ",%" PRId64 "]", site, offset);
  return r;
}

static int write_rank(struct sl_page *page, int64_t rank, int64_t zero_ns, void *context, struct sl_error *error) {
  enum { KIND, ROWS_OF = 2, WANTED };
  struct code *c = context;
  struct sl_statement *row = NULL;
  struct numbered *offsets = NULL; /* of this rank's rows */
  int r = sl_db_ask(page->db, sl_sql_page_code_moments, SL_WITH(SL_NUMBER(":rank", rank), SL_NUMBER(":zero", zero_ns)),
                    &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    char kind[16];
    snprintf(kind, sizeof(kind), "%s", sl_column_text(row, KIND));
    const int64_t rows_of = sl_column_int(row, ROWS_OF), is_peak = strcmp(kind, "peak") == 0;
    int64_t offset = is_peak ? known_id(offsets, rows_of) : -1; /* a repeated period has the rows of another one */
    if (offset < 0 && sl_column_int(row, WANTED)) {
      r = add_rows(c, rank, kind, rows_of, &offset, error);
      if (r == 0 && is_peak && know_id(&offsets, rows_of, offset) < 0)
        r = sl_no_memory(error);
    }
    if (r >= 0)
      r = write_moment(c, rank, row, offset, error);
    if (r < 0)
      break;
  }
  row = sl_statement_close(row);
  SL_HASH_FREE(offsets);
  return r;
}

/* ---- the lists ---- */

/* Each has `width` numbers, or is a text. */
static void write_list(FILE *json, const char *name, const struct numbered *all, int width) {
  fprintf(json, ",\"%s\":[", name);
  for (const struct numbered *one = all; one; one = one->hh.next) {
    fputs(one == all ? "" : ",", json);
    if (width == 0)
      sl_json_text(json, one->key);
    fputs(width > 1 ? "[" : "", json);
    for (int i = 0; i < width; i++) {
      int64_t value = 0;
      memcpy(&value, one->key + (size_t)i * sizeof(value), sizeof(value));
      fprintf(json, "%s%" PRId64, i ? "," : "", value);
    }
    fputs(width > 1 ? "]" : "", json);
  }
  fputc(']', json);
}

static int prepare(struct code *c, struct sl_error *error) {
  struct sl_db *db = c->page->db;
  int r = sl_db_tell(db, sl_sql_page_code_growth_make, NULL, error);
  if (r == 0)
    r = sl_db_tell(db, sl_sql_page_code_moments_make, SL_WITH(SL_NUMBER(":rows", ROWS_MOST)), error);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_page_code_rows, &c->rows, error);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_page_code_site, &c->site, error);
  return r == 0 ? sl_db_prepare(db, sl_sql_page_code_stack, &c->stack, error) : r;
}

int sl_page_code(struct sl_page *page, struct sl_error *error) {
  struct code c = {.page = page};
  int64_t sited = 0;
  int r = sl_db_int(page->db, sl_sql_page_code_ranks, &sited, error);
  fputs(",\"code\":{\"moments\":[", page->json);
  if (r == 0 && sited)
    r = prepare(&c, error);
  if (r == 0 && sited)
    r = sl_page_each_rank(page, true, write_rank, &c, error);
  fputc(']', page->json);
  write_list(page->json, "modules", c.modules, 1);
  write_list(page->json, "texts", c.texts, 0);
  write_list(page->json, "frames", c.frames, 5);
  write_list(page->json, "sites", c.sites, 4);
  fputc('}', page->json);
  c.rows = sl_statement_close(c.rows);
  c.site = sl_statement_close(c.site);
  c.stack = sl_statement_close(c.stack);
  struct numbered **const all[] = {&c.texts, &c.modules, &c.frames, &c.sites, &c.frame_ids, &c.site_ids, &c.row_sets};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
    SL_HASH_FREE(*all[i]);
  return r;
}

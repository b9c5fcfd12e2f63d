/* One HTML file about a run, with everything that it needs in it: viewer/report/ has its parts, page.h its data. */
#include "ask_ledger.h"
#include "command.h"
#include "exports/export.h"
#include "open_ledger.h"
#include "output/terminal.h"
#include "report/page.h"
#include "report/page_text.h"
#include "storage/memory_file.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* ---- the data block ---- */

static int begin_page(struct sl_page *page, struct sl_error *error) {
  int64_t ranks = 0;
  int r = sl_db_int(page->db, sl_sql_report_rank_count, &ranks, error);
  if (r == 0 && ranks == 0)
    r = sl_error_set(error, -ENODATA, "the ledger has no rank: nothing to report");
  if (r == 0)
    r = sl_check_selection(page->db, &page->ranks, -1, error);
  if (r == 0)
    r = sl_check_selection(page->db, &(const struct sl_ranks){0}, page->step, error);
  return r == 0 ? sl_page_begin(page, error) : r;
}

/* json_length JSON, samples, deflated and as base64. The caller frees *out. */
static int pack(const char *json, size_t json_length, const struct sl_bytes *samples, char **out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint8_t head[4] = {(uint8_t)json_length, (uint8_t)(json_length >> 8), (uint8_t)(json_length >> 16),
                     (uint8_t)(json_length >> 24)};
  struct sl_bytes whole = {0};
  uint8_t *packed = NULL;
  char *text = NULL, *end = NULL;
  uLongf size = 0;
  int r = -ENOMEM;

  sl_bytes_add(&whole, head, sizeof(head));
  sl_bytes_add(&whole, json, json_length);
  sl_bytes_add(&whole, samples->data, samples->size);
  if (whole.failed || json_length > UINT32_MAX)
    goto finish;
  size = compressBound(whole.size);
  packed = malloc(size + 2);
  if (!packed || compress2(packed, &size, whole.data, whole.size, 6) != Z_OK)
    goto finish;
  packed[size] = packed[size + 1] = 0;
  end = text = malloc((size + 2) / 3 * 4 + 1);
  if (!text)
    goto finish;
  for (size_t i = 0; i < size; i += 3) {
    uint32_t three = (uint32_t)packed[i] << 16 | (uint32_t)packed[i + 1] << 8 | packed[i + 2];
    for (int shift = 18; shift >= 0; shift -= 6)
      *end++ = digits[three >> shift & 63];
  }
  for (size_t i = 1; i <= (3 - size % 3) % 3; i++)
    end[-(ptrdiff_t)i] = '=';
  *end = '\0';
  *out = text;
  r = 0;
finish:
  sl_bytes_free(&whole);
  free(packed);
  return r;
}

static int gather(struct sl_page *page, char **out, struct sl_error *error) {
  struct sl_memory_file memory;
  size_t length = 0;
  int r = begin_page(page, error);
  if (r < 0)
    return r;
  page->json = sl_memory_file_open(&memory);
  if (!page->json)
    return sl_no_memory(error);
  fputs("{\"version\":\"" SL_VERSION "\"", page->json);
  r = sl_page_answer(page, error);
  if (r == 0)
    r = sl_page_diff(page, error);
  if (r == 0)
    r = sl_page_tables(page, error);
  if (r == 0)
    r = sl_page_heat(page, error);
  if (r == 0)
    r = sl_page_code(page, error);
  if (r == 0)
    r = sl_page_timeline(page, error);
  fputs("}", page->json);
  char *json = sl_memory_file_close(&memory, &length);
  if (!json || page->samples.failed)
    r = r < 0 ? r : sl_no_memory(error);
  if (r == 0 && pack(json, length, &page->samples, out) < 0)
    r = sl_no_memory(error);
  free(json);
  sl_bytes_free(&page->samples);
  return r;
}

/* ---- the file ---- */

/* The template with its marks filled in: {{nonce}}, {{style}}, {{script}}, {{data}}. */
static void write_page(FILE *file, const char *data) {
  /* The data can't leave its element: it is base64. Should anything ever do so, it won't have the mark without which no
   * script runs. The same ledger makes the same page, so the mark is no random number. */
  char nonce[17];
  snprintf(nonce, sizeof(nonce), "%08lx%08lx", crc32(0, (const Bytef *)data, (uInt)strlen(data)),
           adler32(1, (const Bytef *)data, (uInt)strlen(data)));
  const char *at = sl_page_template;
  for (const char *mark = strstr(at, "{{"); mark; mark = strstr(at, "{{")) {
    const char *const *part = NULL;
    fwrite(at, 1, (size_t)(mark - at), file);
    if (strncmp(mark, "{{nonce}}", 9) == 0)
      fputs(nonce, file);
    else if (strncmp(mark, "{{data}}", 8) == 0)
      fputs(data, file);
    else
      part = strncmp(mark, "{{style}}", 9) == 0 ? sl_page_styles : sl_page_scripts;
    for (; part && *part; part++) {
      fputs(*part, file);
      fputc('\n', file);
    }
    at = strstr(mark, "}}") + 2;
  }
  fputs(at, file);
}

static int write_file(const char *output, const char *data, struct sl_error *error) {
  struct sl_export_file file;
  int r = sl_export_begin_any(output, &file, error);
  if (r < 0)
    return r;
  write_page(file.stream, data);
  return sl_export_end(&file, 0, error);
}

int sl_cmd_report(const struct sl_command *command, int argc, char **argv) {
  struct sl_page page = {.step = -1};
  struct sl_error error = {{0}};
  const char *paths[2] = {NULL, NULL}, *output = "report.html", *run = NULL;
  char *data = NULL;
  const struct sl_argument arguments[] = {
      {"output", 'o', "FILE", "where to write it; replaced when it is there; default: report.html", SL_ARGUMENT_TEXT,
       &output},
      {"step", 0, "N", "hold every allocation of this step, too", SL_ARGUMENT_NUMBER, &page.step},
      {"rank", 0, "RANKS", "with more than 8 ranks: draw these, too, such as 7 or 0-3,7", SL_ARGUMENT_RANKS,
       &page.ranks.text},
      SL_RUN_ARGUMENT(run),
  };
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, paths, 2);
  if (r < 0)
    return sl_parse_exit(r);
  page.before = paths[1] ? paths[0] : NULL;
  r = sl_open_run(paths[1] ? paths[1] : sl_chosen_directory(paths[0]), run, &page.db, &error);
  if (r == 0)
    r = gather(&page, &data, &error);
  if (r == 0)
    r = write_file(output, data, &error);
  sl_progress_clear();
  page.db = sl_db_close(page.db);
  free(data);
  if (r < 0)
    sl_complain("%s", error.text);
  else
    r = sl_print_path(output);
  return r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}

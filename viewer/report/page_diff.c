/*
 * Run against run: what 'shardledger diff BEFORE DIR' says.
 *
 *   "diff": {"before": name of the run before, "line": its first lines, "rows": its table `changes`}
 */
#include "commands/diff.h"
#include "open_ledger.h"
#include "output/text.h"
#include "report/page.h"

#include <string.h>

/* Both are asked for by each print: the other one goes nowhere. */
static int diff_print(struct sl_page *page, struct sl_output *out, void *context, struct sl_error *error) {
  struct sl_output other = {.format = SL_FORMAT_text, .file = fopen("/dev/null", "w")};
  const bool is_line = out->format == SL_FORMAT_text;
  struct sl_db *before = NULL;
  (void)context;
  if (!other.file)
    return sl_no_memory(error);
  int r = sl_open_run(page->before, NULL, &before, error);
  if (r == 0)
    r = sl_print_diff(before, sl_db_path(page->db), is_line ? out : &other, is_line ? &other : out, error);
  before = sl_db_close(before);
  fclose(other.file);
  return r;
}

int sl_page_diff(struct sl_page *page, struct sl_error *error) {
  if (!page->before)
    return 0;
  fputs(",\"diff\":{\"before\":", page->json);
  sl_json_text(page->json, page->before);
  int r = sl_page_said(page, "line", SL_FORMAT_text, diff_print, NULL, error);
  if (r == 0)
    r = sl_page_said(page, "rows", SL_FORMAT_json, diff_print, NULL, error);
  fputs("}", page->json);
  return r;
}

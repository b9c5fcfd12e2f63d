/* What would make the run fit, or take less: what 'shardledger advise' says of it. */
#include "commands/advice.h"
#include "output/text.h"
#include "report/page.h"

#include <errno.h>
#include <inttypes.h>

static int lines_print(struct sl_page *page, struct sl_output *out, void *advise, struct sl_error *error) {
  (void)page;
  (void)error;
  sl_print_goal(out, advise);
  sl_print_floor(out, advise);
  return 0;
}

static int tables_print(struct sl_page *page, struct sl_output *out, void *advise, struct sl_error *error) {
  (void)page;
  (void)error;
  sl_print_advice(out, advise);
  sl_print_goal_row(out, advise);
  return 0;
}

static int write_advice(struct sl_page *page, struct sl_advise *advise, struct sl_error *error) {
  fprintf(page->json, ",\"rank\":%" PRIu32 ",\"refused\":%s,\"step\":", advise->goal.rank,
          advise->goal.is_refused ? "true" : "false");
  if (advise->goal.step >= 0)
    fprintf(page->json, "%" PRId64, advise->goal.step);
  else
    fputs("null", page->json);
  int r = sl_page_said(page, "lines", SL_FORMAT_text, lines_print, advise, error);
  return r == 0 ? sl_page_said(page, "said", SL_FORMAT_json, tables_print, advise, error) : r;
}

/* Of a record that is not fit for advice the page says why. */
int sl_page_advice(struct sl_page *page, struct sl_error *error) {
  const struct sl_ranks all = {.text = NULL};
  struct sl_advise advise = {0};
  uint32_t rank = 0;
  int64_t at_ns = -1;
  int r = sl_advise_choose(page->db, &all, &rank, &at_ns, error);
  if (r == 0)
    r = sl_advise_run(page->db, rank, at_ns, 0, &advise, error);
  if (r == -ENOMEM)
    return r;
  fprintf(page->json, ",\"advice\":{\"why\":");
  if (r < 0) {
    sl_json_text(page->json, error->text);
    error->text[0] = '\0';
    r = 0;
  } else {
    fputs("null", page->json);
    r = write_advice(page, &advise, error);
  }
  fputs("}", page->json);
  sl_advise_free(&advise);
  return r;
}

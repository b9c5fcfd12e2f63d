/* What would have helped the first rank that died of a refused request: what 'shardledger advise' says of it. */
#include "commands/advice.h"
#include "commands/oom_death.h"
#include "output/text.h"
#include "report/page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Prints into *text, which the caller frees. */
static int print_into(enum sl_format format, const struct sl_advise *advise,
                      void (*print)(struct sl_output *, const struct sl_advise *), char **text) {
  struct sl_output out = {.format = format};
  size_t size = 0;
  out.file = open_memstream(text, &size);
  if (!out.file)
    return -ENOMEM;
  print(&out, advise);
  const int failed = sl_output_close(&out);
  return fclose(out.file) == 0 ? failed : -ENOMEM;
}

static void lines_print(struct sl_output *out, const struct sl_advise *advise) {
  sl_print_goal(out, advise);
  sl_print_floor(out, advise);
}

static void tables_print(struct sl_output *out, const struct sl_advise *advise) {
  sl_output_document(out);
  sl_print_advice(out, advise);
  sl_print_goal_row(out, advise);
}

static int write_advice(struct sl_page *page, const struct sl_advise *advise, struct sl_error *error) {
  char *lines = NULL, *tables = NULL;
  int r = print_into(SL_FORMAT_text, advise, lines_print, &lines);
  if (r == 0)
    r = print_into(SL_FORMAT_json, advise, tables_print, &tables);
  if (r == 0) {
    fputs(",\"lines\":", page->json);
    sl_json_text(page->json, lines);
    fprintf(page->json, ",\"said\":%s", tables);
  }
  free(lines);
  free(tables);
  return r < 0 ? sl_no_memory(error) : 0;
}

/* Of a record that is not fit for advice the page says why. */
static int write_death(struct sl_page *page, const struct sl_death *death, struct sl_error *error) {
  struct sl_advise advise = {0};
  int r = sl_advise_run(page->db, (uint32_t)death->rank, death->at_ns, 0, &advise, error);
  if (r == -ENOMEM)
    return r;
  fprintf(page->json, ",\"advice\":{\"rank\":%" PRId64 ",\"step\":", death->rank);
  if (death->step >= 0)
    fprintf(page->json, "%" PRId64, death->step);
  else
    fputs("null", page->json);
  if (r < 0) {
    fputs(",\"why\":", page->json);
    sl_json_text(page->json, error->text);
    error->text[0] = '\0';
    r = 0;
  } else {
    r = write_advice(page, &advise, error);
  }
  fputs("}", page->json);
  sl_advise_free(&advise);
  return r;
}

int sl_page_advice(struct sl_page *page, struct sl_error *error) {
  const struct sl_ranks all = {.text = NULL};
  struct sl_death death = {0};
  int r = sl_read_request(page->db, &all, &death, error);
  if (r <= 0 || !death.deadly)
    return r < 0 ? r : 0;
  r = write_death(page, &death, error);
  /* The engine's table has the name of the page's own. */
  return r < 0 ? r : sl_db_execute(page->db, "DROP TABLE IF EXISTS temp.held", error);
}

/*
 * The first screen: what the run came to. Its sentences are those of `oom`, `advise`, `survivors` and `peaks`; its
 * figures are the ledger's, at one moment of one rank: the request that ended the first one, else the highest peak.
 *
 *   "advice": page_advice.c
 *   "answer": {"known": whether any peak is, "death": lines of `oom`, "dead": its tables `deaths` and `categories`,
 * "grows": lines of `survivors`, "growing": its table `growth`, "driver": what the driver gave, where PyTorch's
 * allocations are not known, "segments": PyTorch's part of the device at the moment, or null}
 *
 * The tables answer_at, answer_owners, answer_sample and answer_device are with the others (page_tables.c).
 */
#include "commands/oom_death.h"
#include "commands/oom_print.h"
#include "commands/segment_map.h"
#include "commands/summary.h"
#include "commands/survivors.h"
#include "report/page.h"
#include "viewer_sql.h"

#include <inttypes.h>

static int death_print(struct sl_page *page, struct sl_output *out, void *context, struct sl_error *error) {
  (void)context;
  return sl_print_death(page->db, out, error);
}

static int dead_print(struct sl_page *page, struct sl_output *out, void *context, struct sl_error *error) {
  (void)context;
  return sl_print_death_tables(page->db, out, error);
}

/* The same twice: first the line, then the table. What is not wanted goes nowhere. */
static int growth_print(struct sl_page *page, struct sl_output *out, void *context, struct sl_error *error) {
  struct sl_output other = {.format = SL_FORMAT_text, .file = fopen("/dev/null", "w")};
  const bool is_line = out->format == SL_FORMAT_text;
  (void)context;
  if (!other.file)
    return sl_no_memory(error);
  int r = sl_print_growth(page->db, is_line ? out : &other, is_line ? &other : out, error);
  fclose(other.file);
  return r;
}

static int driver_print(struct sl_page *page, struct sl_output *out, void *context, struct sl_error *error) {
  (void)context;
  return sl_print_driver_peak(page->db, out, &(const struct sl_ranks){.text = NULL}, "the end of this page says why",
                              error);
}

/* PyTorch's part of the device at the answer's moment: nothing where the segments and the allocations don't agree. */
static int write_segments(struct sl_page *page, struct sl_error *error) {
  struct sl_statement *row = NULL;
  struct sl_segment_map *map = NULL;
  int64_t largest = 0;
  fputs(",\"segments\":", page->json);
  int r = sl_db_ask_first(page->db, sl_sql_answer_moment, NULL, &row, error);
  if (r > 0) {
    const int64_t at_ns = sl_column_int(row, 2), allocated = sl_column_int(row, 3);
    r = sl_segment_maps_read(page->db, sl_column_int(row, 0), sl_column_int(row, 1), &at_ns, 1, &map, error);
    for (size_t i = 0; r == 0 && i < map->count; i++)
      if (map->segments[i].largest_free_bytes > largest)
        largest = map->segments[i].largest_free_bytes;
    if (r == 0 && map->reserved_bytes && !map->outside_bytes && map->allocated_bytes == allocated)
      fprintf(page->json,
              "{\"allocated\":%" PRId64 ",\"pending\":%" PRId64 ",\"cached\":%" PRId64 ",\"reserved\":%" PRId64
              ",\"largest_free\":%" PRId64 ",\"segments\":%zu}",
              allocated, map->pending_bytes, map->reserved_bytes - allocated - map->pending_bytes, map->reserved_bytes,
              largest, map->count);
    else
      fputs("null", page->json);
    map = sl_segment_map_free(map);
  } else {
    fputs("null", page->json);
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

static int make_tables(struct sl_page *page, struct sl_error *error) {
  const struct sl_ranks all = {.text = NULL};
  struct sl_death death = {0};
  int r = sl_read_request(page->db, &all, &death, error);
  const bool is_dead = r > 0 && death.deadly && death.allocated_known;
  if (r >= 0)
    r = sl_db_tell(page->db, sl_sql_answer_make,
                   SL_WITH(SL_NUMBER(":dead", is_dead), SL_NUMBER(":rank", death.rank), SL_NUMBER(":at", death.at_ns)),
                   error);
  return r < 0 ? r : sl_db_tell(page->db, sl_sql_answer_alive_make, NULL, error);
}

int sl_page_answer(struct sl_page *page, struct sl_error *error) {
  int64_t known = 0;
  int r = sl_page_advice(page, error); /* makes the table `held` of a refused request, which the next ones need */
  if (r == 0)
    r = sl_db_int(page->db, sl_sql_summary_has_peaks, &known, error);
  fprintf(page->json, ",\"answer\":{\"known\":%s", known ? "true" : "false");
  if (r == 0)
    r = sl_page_said(page, "death", SL_FORMAT_text, death_print, NULL, error);
  if (r == 0)
    r = sl_page_said(page, "dead", SL_FORMAT_json, dead_print, NULL, error);
  if (r == 0)
    r = sl_page_said(page, "grows", SL_FORMAT_text, growth_print, NULL, error);
  if (r == 0)
    r = sl_page_said(page, "growing", SL_FORMAT_json, growth_print, NULL, error);
  if (r == 0 && !known)
    r = sl_page_said(page, "driver", SL_FORMAT_text, driver_print, NULL, error);
  /* The engine's table has the name of the page's own. */
  if (r == 0)
    r = sl_db_execute(page->db, "DROP TABLE IF EXISTS temp.held", error);
  if (r == 0)
    r = make_tables(page, error);
  if (r == 0)
    r = write_segments(page, error);
  fputs("}", page->json);
  return r;
}

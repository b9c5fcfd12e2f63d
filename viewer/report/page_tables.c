/* The small tables of the report's page: each is a query, its columns named by the query itself. */
#include "commands/rank_lines.h"
#include "output/text.h"
#include "report/page.h"
#include "storage/attribution/attribution.h"
#include "storage/memory_file.h"
#include "viewer_sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ALLOCATIONS_MOST = 20000 }; /* one by one, of all drawn ranks: some 0.5 MB of page */

static const struct page_table {
  const char *name, *sql;
  enum { FOR_RUN, FOR_EACH, FOR_DRAWN } who; /* once, for each rank, or for each that is drawn */
  const char *needs;                         /* a table without which there are no rows; NULL: it is always there */
} tables[] = {
    {"answer_at", sl_sql_answer_at, FOR_RUN, NULL},
    {"answer_owners", sl_sql_answer_owners, FOR_RUN, NULL},
    {"answer_sample", sl_sql_answer_sample, FOR_RUN, NULL},
    {"answer_device", sl_sql_answer_device, FOR_RUN, NULL},
    {"meta", sl_sql_page_meta, FOR_RUN, NULL},
    {"categories", sl_sql_page_categories, FOR_RUN, NULL},
    {"ranks", sl_sql_page_ranks, FOR_EACH, NULL},
    {"coverage", sl_sql_page_coverage, FOR_RUN, NULL},
    {"life", sl_sql_page_life, FOR_RUN, NULL},
    {"life_category", sl_sql_page_life_category, FOR_EACH, NULL},
    {"groups", sl_sql_page_groups, FOR_RUN, NULL},
    {"mesh", sl_sql_page_mesh, FOR_RUN, NULL},
    {"unchecked", sl_sql_page_unchecked, FOR_RUN, NULL},
    {"steps", sl_sql_page_steps, FOR_DRAWN, NULL},
    {"peak_category", sl_sql_page_peak_category, FOR_DRAWN, NULL},
    {"modules", sl_sql_page_modules, FOR_DRAWN, NULL},
    {"module_peaks", sl_sql_page_module_peaks, FOR_DRAWN, NULL},
    {"phases", sl_sql_page_phases, FOR_DRAWN, NULL},
    {"collectives", sl_sql_page_collectives, FOR_DRAWN, NULL},
    {"collective_totals", sl_sql_page_collective_totals, FOR_DRAWN, NULL},
    {"collective_repeats", /* those of steps that left their rows to another one */
     sl_sql_page_collective_repeats, FOR_DRAWN, "collective_total"},
    {"device_samples", sl_sql_page_device_samples, FOR_DRAWN, NULL},
    {"device_balance", sl_sql_page_device_balance, FOR_DRAWN, NULL},
    {"device_meaning", sl_sql_page_device_meaning, FOR_RUN, NULL},
    {"oom", sl_sql_page_oom, FOR_EACH, NULL},
    {"sited", sl_sql_page_sited, FOR_DRAWN, NULL},
    {"allocations", sl_sql_allocations, FOR_DRAWN, NULL},
    {"allocation_counts", sl_sql_allocation_counts, FOR_DRAWN, NULL},
    {"allocation_phases", sl_sql_allocation_phases, FOR_RUN, NULL},
    {"allocation_sites", sl_sql_allocation_sites, FOR_RUN, NULL},
    {"segments", sl_sql_page_segments, FOR_DRAWN, NULL},
    {"gaps", sl_sql_page_gaps, FOR_EACH, NULL},
    {"sources", sl_sql_page_sources, FOR_EACH, NULL},
};

static void write_value(FILE *json, struct sl_statement *row, int column) {
  switch (sl_column_type(row, column)) {
  case SL_VALUE_null: fputs("null", json); break;
  case SL_VALUE_int: fprintf(json, "%" PRId64, sl_column_int(row, column)); break;
  case SL_VALUE_double: fprintf(json, "%.17g", sl_column_double(row, column)); break;
  default: sl_json_text(json, sl_column_text(row, column));
  }
}

struct rows {
  const struct page_table *table;
  bool named;    /* its columns are written */
  int64_t count; /* rows so far */
};

static int write_rows(struct sl_page *page, int64_t rank, int64_t zero_ns, void *context, struct sl_error *error) {
  struct rows *rows = context;
  struct sl_statement *row = NULL;
  int r = sl_db_ask(page->db, rows->table->sql, SL_WITH(SL_NUMBER(":rank", rank), SL_NUMBER(":zero", zero_ns)), &row,
                    error);
  if (r < 0)
    return r;
  if (!rows->named) {
    for (int i = 0; i < sl_column_count(row); i++) {
      fputc(i ? ',' : '[', page->json);
      sl_json_text(page->json, sl_column_name(row, i));
    }
    fputs("],\"rows\":[", page->json);
    rows->named = true;
  }
  while ((r = sl_statement_step(row, error)) > 0) {
    fputs(rows->count++ ? ",\n[" : "[", page->json);
    for (int i = 0; i < sl_column_count(row); i++) {
      if (i)
        fputc(',', page->json);
      write_value(page->json, row, i);
    }
    fputc(']', page->json);
    sl_page_progress(page);
  }
  row = sl_statement_close(row);
  return r;
}

static int count_tables(struct sl_page *page, const char *name, int64_t *out, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(page->db, sl_sql_page_has_table, SL_WITH(SL_WORD(":name", name)), &row, error);
  *out = r > 0 ? sl_column_int(row, 0) : 0;
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

/* What 'shardledger ranks' says, as the heading of every command has it. */
static int write_rank_lines(struct sl_page *page, struct sl_error *error) {
  struct sl_output lines = {.format = SL_FORMAT_text};
  struct sl_memory_file memory;
  lines.file = sl_memory_file_open(&memory);
  int r = lines.file ? sl_print_rank_heading(page->db, &lines, error) : 0;
  char *text = sl_memory_file_close(&memory, NULL);
  if (!text)
    return r < 0 ? r : sl_no_memory(error);
  fputs(",\"rank_lines\":", page->json);
  sl_json_text(page->json, text);
  free(text);
  return r;
}

/* Why an allocation has its category, for each rule. */
static void write_rules(struct sl_page *page) {
  fputs(",\"rules\":{", page->json);
  for (int i = 0; i < SL_RULE_count; i++) {
    fputs(i ? "," : "", page->json);
    sl_json_text(page->json, sl_rules[i].name);
    fputc(':', page->json);
    sl_json_text(page->json, sl_rules[i].meaning);
  }
  fputc('}', page->json);
}

int sl_page_tables(struct sl_page *page, struct sl_error *error) {
  int r = sl_db_tell(page->db, sl_sql_page_held, SL_WITH(SL_NUMBER(":step", page->step)), error);
  if (r == 0)
    r = sl_db_tell(page->db, sl_sql_allocations_make, SL_WITH(SL_NUMBER(":rows", ALLOCATIONS_MOST)), error);
  write_rules(page);
  for (size_t i = 0; r == 0 && i < sizeof(tables) / sizeof(tables[0]); i++) {
    struct rows rows = {.table = &tables[i]};
    int64_t there = 1;
    fprintf(page->json, ",\"%s\":{\"columns\":", tables[i].name);
    if (tables[i].needs)
      r = count_tables(page, tables[i].needs, &there, error);
    if (r == 0 && there)
      r = tables[i].who == FOR_RUN ? write_rows(page, 0, page->first_ns, &rows, error)
                                   : sl_page_each_rank(page, tables[i].who == FOR_DRAWN, write_rows, &rows, error);
    fputs(rows.named ? "]}" : "[],\"rows\":[]}", page->json);
  }
  return r == 0 ? write_rank_lines(page, error) : r;
}

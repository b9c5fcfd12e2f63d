/* Each site is written once, when an event first has it. */
#include "exports/kineto_sites.h"

#include "output/text.h"
#include "storage/hash_table.h"
#include "storage/memory_file.h"
#include "viewer_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct written {
  UT_hash_handle hh;
  int64_t site;
  char *arguments; /* owned */
};

struct sl_kineto_sites {
  struct sl_db *db;
  struct written *written;
};

struct sl_kineto_sites *sl_kineto_sites_new(struct sl_db *db) {
  struct sl_kineto_sites *sites = calloc(1, sizeof(*sites));
  if (sites)
    sites->db = db;
  return sites;
}

struct sl_kineto_sites *sl_kineto_sites_free(struct sl_kineto_sites *sites) {
  struct written *one, *next;
  if (!sites)
    return NULL;
  HASH_ITER(hh, sites->written, one, next) {
    HASH_DEL(sites->written, one);
    free(one->arguments);
    free(one);
  }
  free(sites);
  return NULL;
}

/* "file(line): function;" of each frame. */
static int write_stack(struct sl_db *db, int64_t frame, FILE *to, struct sl_error *error) {
  struct sl_statement *row = NULL;
  struct sl_memory_file memory;
  FILE *text = sl_memory_file_open(&memory);
  if (!text)
    return sl_no_memory(error);
  int r = sl_db_ask(db, sl_sql_code_stack, SL_WITH(SL_NUMBER(":frame", frame)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    const char *function = sl_column_text(row, 1), *file = sl_column_text(row, 2);
    fprintf(text, "%s(%" PRId64 "): %s;", file, sl_column_int(row, 3), function);
  }
  row = sl_statement_close(row);
  char *stack = sl_memory_file_close(&memory, NULL);
  if (!stack)
    r = r < 0 ? r : sl_no_memory(error);
  if (r == 0) {
    fputs(", \"Call stack\": ", to);
    sl_json_text(to, stack);
  }
  free(stack);
  return r;
}

static int write_site(struct sl_db *db, int64_t site, FILE *to, struct sl_error *error) {
  enum { FRAME, OPERATOR, OF };
  struct sl_statement *row = NULL;
  int r = sl_db_ask_first(db, sl_sql_kineto_site, SL_WITH(SL_NUMBER(":site", site)), &row, error);
  const bool found = r > 0;
  if (found && !sl_column_is_null(row, FRAME))
    r = write_stack(db, sl_column_int(row, FRAME), to, error);
  if (found && !sl_column_is_null(row, OPERATOR)) {
    fputs(", \"Operator\": ", to);
    sl_json_text(to, sl_column_text(row, OPERATOR));
  }
  if (found && !sl_column_is_null(row, OF)) {
    fputs(", \"Call stack of\": ", to);
    sl_json_text(to, sl_column_text(row, OF));
  }
  row = sl_statement_close(row);
  return r < 0 ? r : 0;
}

int sl_kineto_site(struct sl_kineto_sites *sites, int64_t site, const char **out, struct sl_error *error) {
  struct written *found = NULL;
  HASH_FIND(hh, sites->written, &site, sizeof(site), found);
  if (!found) {
    struct sl_memory_file memory;
    found = calloc(1, sizeof(*found));
    FILE *to = found ? sl_memory_file_open(&memory) : NULL;
    if (!to) {
      free(found);
      return sl_no_memory(error);
    }
    found->site = site;
    int r = write_site(sites->db, site, to, error);
    found->arguments = sl_memory_file_close(&memory, NULL);
    if (!found->arguments)
      r = r < 0 ? r : sl_no_memory(error);
    if (r < 0) {
      free(found->arguments);
      free(found);
      return r;
    }
    char *arguments = found->arguments;
    SL_HASH_ADD(sites->written, site, found);
    if (!found) {
      free(arguments);
      return sl_no_memory(error);
    }
  }
  *out = found->arguments;
  return 0;
}

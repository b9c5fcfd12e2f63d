/*
 * The report's page: what cmd_report.c writes, and who gathers it. The page is one HTML file; its data is one block:
 *
 *   base64(deflate(length of the JSON as 4 bytes, little-endian; JSON; samples))
 *
 * The JSON has the small tables (page_tables.c) and the index of the samples (page_timeline.c).
 */
#ifndef SHARDLEDGER_PAGE_H
#define SHARDLEDGER_PAGE_H

#include "storage/error.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_bytes {
  uint8_t *data; /* owned; free it with sl_bytes_free */
  size_t size, room;
  bool failed; /* memory ran out: what was added after that is missing */
};
void sl_bytes_add(struct sl_bytes *bytes, const void *data, size_t size);
void sl_bytes_free(struct sl_bytes *bytes);

struct sl_page {
  struct sl_db *db;
  int64_t step; /* to be held in full whatever the budget says; -1: none */
  int64_t ranks;
  int64_t first_ns; /* start of the page's clock, which is that of the first rank's host */
  int64_t rows, rows_done;
  FILE *json;              /* the object is open: members may be added */
  struct sl_bytes samples; /* what the JSON points into */
};

/* Adds the tables, as members. 0, or a negative errno with the sentence in error. */
int sl_page_tables(struct sl_page *page, struct sl_error *error);

/* Adds the member "timeline" and the samples. */
int sl_page_timeline(struct sl_page *page, struct sl_error *error);

/* Counts rows and shows how far the report is. */
void sl_page_progress(struct sl_page *page, int64_t rows);

/* Calls write for each rank; zero_ns is what to subtract from its times to have them on the page's clock. */
typedef int sl_page_rank(struct sl_page *page, int64_t rank, int64_t zero_ns, void *context, struct sl_error *error);
int sl_page_each_rank(struct sl_page *page, sl_page_rank *write, void *context, struct sl_error *error);

#endif

/*
 * The report's page: what cmd_report.c writes, and who gathers it. The page is one HTML file; its data is one block:
 *
 *   base64(deflate(length of the JSON as 4 bytes, little-endian; JSON; samples))
 *
 * The JSON has the small tables (page_tables.c), the first screen's answer (page_answer.c) with advice
 * (page_advice.c), and the indexes of the samples: peaks of all steps (page_heat.c), lines of code (page_code.c), and
 * memory over time (page_timeline.c). Of up to 8 ranks each is drawn. Of more those are that speak for others or stand
 * out: the rest has a row in a few tables and its peaks, and the page shows the rank that stands for it.
 */
#ifndef SHARDLEDGER_PAGE_H
#define SHARDLEDGER_PAGE_H

#include "ask_ledger.h"
#include "output/table.h"
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
  int64_t step;          /* to be held in full whatever the budget says; -1: none */
  struct sl_ranks ranks; /* to be drawn whatever they resemble; without text: none */
  const char *before;    /* the run that it is held against; NULL: none */
  int64_t drawn;
  int64_t first_ns; /* start of the page's clock, which is that of the first rank's host */
  int64_t rows, rows_done;
  FILE *json;              /* the object is open: members may be added */
  struct sl_bytes samples; /* what the JSON points into */
};

/* Chooses the ranks that are drawn, and finds the page's clock. First of all. 0 or a negative errno, as below. */
int sl_page_begin(struct sl_page *page, struct sl_error *error);

/*
 * Adds the member "answer": what the run came to, in the words of `oom`, `advise` and `survivors`, and what the device
 * held then. Makes the table `answer` of its rank and moment. Before the tables.
 */
int sl_page_answer(struct sl_page *page, struct sl_error *error);

/* Adds the member "advice": what 'shardledger advise' says of the run, or why it says nothing. Part of the answer. */
int sl_page_advice(struct sl_page *page, struct sl_error *error);

/* Adds the member "diff", where there is a run to hold it against. */
int sl_page_diff(struct sl_page *page, struct sl_error *error);

/* Adds a member that a command prints: its text as a string, its tables as an object. 0 or a negative errno. */
typedef int sl_page_print(struct sl_page *page, struct sl_output *out, void *context, struct sl_error *error);
int sl_page_said(struct sl_page *page, const char *name, enum sl_format format, sl_page_print *print, void *context,
                 struct sl_error *error);

/* Adds the tables, as members. 0, or a negative errno with the sentence in error. */
int sl_page_tables(struct sl_page *page, struct sl_error *error);

/* Adds the member "heat" and its samples: what was allocated at the peak of each step of each rank. */
int sl_page_heat(struct sl_page *page, struct sl_error *error);

/* Adds the member "code" and its samples: where in the code was asked for what the page shows. After the tables. */
int sl_page_code(struct sl_page *page, struct sl_error *error);

/* Adds the member "timeline" and the samples. */
int sl_page_timeline(struct sl_page *page, struct sl_error *error);

/* Counts a row and shows how far the report is. */
void sl_page_progress(struct sl_page *page);

/* LEB128, as all numbers among the samples; a signed one is zigzag. */
void sl_bytes_add_number(struct sl_bytes *bytes, uint64_t value);
void sl_bytes_add_signed(struct sl_bytes *bytes, int64_t value);
uint64_t sl_bytes_hash(const struct sl_bytes *bytes);

/* Runs of the samples that several may share. */
struct sl_shared_samples {
  struct sl_shared_run {
    uint64_t hash;
    size_t offset, size;
  } * list; /* owned */
  size_t count;
};

/* Where these bytes are among the page's samples; adds them when they are new. 0 or -ENOMEM. */
int sl_page_share(struct sl_page *page, struct sl_shared_samples *shared, const struct sl_bytes *bytes, size_t *offset);

/* Calls write for each rank, or each one that is drawn; zero_ns is what to subtract from its times to have them on the
 * page's clock. */
typedef int sl_page_rank(struct sl_page *page, int64_t rank, int64_t zero_ns, void *context, struct sl_error *error);
int sl_page_each_rank(struct sl_page *page, bool is_drawn, sl_page_rank *write, void *context, struct sl_error *error);

#endif

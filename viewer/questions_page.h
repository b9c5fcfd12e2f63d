/* docs/queries.md is in the program: what people read there, what exports carry and what assistants ask is one text. */
#ifndef SHARDLEDGER_QUESTIONS_PAGE_H
#define SHARDLEDGER_QUESTIONS_PAGE_H

#include <stdbool.h>

/* Texts are within the page and do not end there. */
struct sl_page_question {
  char id[128];                      /* the heading's words and the number: which-ranks-are-different-2 */
  const char *heading, *about, *sql; /* about: the paragraph right above the statement, or nothing */
  int heading_bytes, about_bytes, sql_bytes;
  int number; /* from 1, within its heading */
};

/* The next one: of a question that is all zero the first. false: there is none. */
bool sl_page_next_question(struct sl_page_question *question);

#endif

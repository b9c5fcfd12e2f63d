/* Reads the questions of docs/queries.md out of the program. */
#include "questions_page.h"

#include "embed_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

SL_EMBED(sl_questions_page, SL_VIEWER_DIRECTORY "/../docs/queries.md");
extern const char sl_questions_page[];

/* The beginning of the last line before `end` that begins so; NULL: there is none. */
static const char *line_before(const char *end, const char *mark) {
  const size_t length = strlen(mark);
  for (const char *at = end; at > sl_questions_page; at--)
    if (at[-1] == '\n' && strncmp(at, mark, length) == 0)
      return at;
  return NULL;
}

static void make_id(struct sl_page_question *question) {
  size_t used = 0;
  for (int i = 0; i < question->heading_bytes && used < sizeof question->id - 4; i++) {
    const unsigned char c = (unsigned char)question->heading[i];
    if (isalnum(c) && c < 0x80)
      question->id[used++] = (char)tolower(c);
    else if (used && question->id[used - 1] != '-')
      question->id[used++] = '-';
  }
  while (used && question->id[used - 1] == '-')
    used--;
  question->id[used] = 0;
  if (question->number > 1)
    snprintf(question->id + used, sizeof question->id - used, "-%d", question->number);
}

/* The paragraph right above the statement's fence, where one stands between it and what was before. */
static void find_about(struct sl_page_question *question, const char *fence) {
  const char *from = question->heading + question->heading_bytes, *fenced = line_before(fence, "```"), *end = fence;
  if (fenced && fenced > from)
    from = fenced + strlen("```");
  while (end > from && isspace((unsigned char)end[-1]))
    end--;
  const char *begin = end;
  while (begin > from && !(begin[-1] == '\n' && begin[-2] == '\n'))
    begin--;
  while (begin < end && isspace((unsigned char)*begin))
    begin++;
  question->about = begin;
  question->about_bytes = (int)(end - begin);
}

bool sl_page_next_question(struct sl_page_question *question) {
  static const char fence[] = "\n```sql", close[] = "\n```";
  const char *before = question->sql ? question->sql + question->sql_bytes : sl_questions_page;
  const char *at = strstr(before, fence);
  const char *sql = at ? strchr(at + 1, '\n') : NULL;
  const char *end = sql ? strstr(sql, close) : NULL;
  const char *heading = at ? line_before(at, "## ") : NULL;
  if (!end || !heading)
    return false;
  *question = (struct sl_page_question){.heading = heading + 3, .sql = sql + 1, .sql_bytes = (int)(end - sql - 1)};
  question->heading_bytes = (int)strcspn(question->heading, "\n");

  question->number = 1;
  for (const char *other = heading; (other = strstr(other, fence)) && other < at; other += sizeof fence)
    question->number++;
  make_id(question);
  find_about(question, at);
  return true;
}

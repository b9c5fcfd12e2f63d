/* The page of questions is in the program: what people read there and what assistants ask is one text. */
#include "serve/mcp_tools.h"
#include "storage/tables/sql_embed.h"

#include <ctype.h>
#include <string.h>

SL_SQL_TEXT(sl_questions_page, SL_SQL_DIRECTORY "/../docs/queries.md");
extern const char sl_questions_page[];

/* The beginning of the last line before `end` that begins so; NULL: there is none. */
static const char *line_before(const char *end, const char *mark) {
  const size_t length = strlen(mark);
  for (const char *at = end; at > sl_questions_page; at--)
    if (at[-1] == '\n' && strncmp(at, mark, length) == 0)
      return at;
  return NULL;
}

/* "which-ranks-are-different-2": the heading's words, and which of its questions it is. */
static void make_id(struct sl_mcp_question *question, int number) {
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
  if (number > 1)
    snprintf(question->id + used, sizeof question->id - used, "-%d", number);
}

bool sl_mcp_next_question(struct sl_mcp_question *out) {
  static const char fence[] = "\n```sql", close[] = "\n```";
  const char *before = out->sql ? out->sql + out->sql_bytes : sl_questions_page;
  const char *at = strstr(before, fence);
  const char *sql = at ? strchr(at + 1, '\n') : NULL;
  const char *end = sql ? strstr(sql, close) : NULL;
  const char *heading = at ? line_before(at, "## ") : NULL;
  if (!end || !heading)
    return false;
  *out = (struct sl_mcp_question){.heading = heading + 3, .sql = sql + 1, .sql_bytes = (int)(end - sql - 1)};
  out->heading_bytes = (int)strcspn(out->heading, "\n");

  int number = 1;
  for (const char *other = heading; (other = strstr(other, fence)) && other < at; other += sizeof fence)
    number++;
  make_id(out, number);

  /* The paragraph right above, where one stands between it and what was before. */
  const char *from = out->heading + out->heading_bytes, *fenced = line_before(at, "```");
  if (fenced && fenced > from)
    from = fenced + strlen("```");
  while (at > from && isspace((unsigned char)at[-1]))
    at--;
  const char *paragraph = at;
  while (paragraph > from && !(paragraph[-1] == '\n' && paragraph[-2] == '\n'))
    paragraph--;
  while (paragraph < at && isspace((unsigned char)*paragraph))
    paragraph++;
  out->about = paragraph;
  out->about_bytes = (int)(at - paragraph);
  return true;
}

/* The views: their text, and their names with the comments before them. */
#include "views.h"

#include "storage/memory_file.h"
#include "storage/rules/categories.h"
#include "storage/tables/sql_text.h"

#include <stdio.h>
#include <string.h>

bool sl_view_next(struct sl_view *view) {
  if (!view->rest)
    view->rest = sl_views_sql;
  *view->meaning = '\0';
  while (*view->rest) {
    const char *line = view->rest;
    const int length = (int)strcspn(line, "\n");
    view->rest += length + (line[length] == '\n');
    if (strncmp(line, "-- ", 3) == 0) {
      const size_t used = strlen(view->meaning);
      snprintf(view->meaning + used, sizeof view->meaning - used, "%s%.*s", used ? " " : "", length - 3, line + 3);
    } else if (sscanf(line, "CREATE VIEW %63[a-z_]", view->name) == 1) {
      return true;
    } else {
      *view->meaning = '\0'; /* it was a comment on the file, or within a view */
    }
  }
  return false;
}

bool sl_view_find(const char *name, struct sl_view *view) {
  *view = (struct sl_view){.rest = NULL};
  while (sl_view_next(view))
    if (strcmp(view->name, name) == 0)
      return true;
  *view = (struct sl_view){.rest = NULL};
  return false;
}

char *sl_views_text(void) {
  static const char mark[] = "  -- CATEGORIES\n";
  const char *at = strstr(sl_views_sql, mark);
  struct sl_memory_file text;
  FILE *stream = sl_memory_file_open(&text);
  if (!stream)
    return NULL;
  fwrite(sl_views_sql, 1, (size_t)(at - sl_views_sql), stream);
  for (int i = 0; i < SL_CATEGORY_other; i++)
    fprintf(stream, "  coalesce(sum(c.bytes) FILTER (WHERE c.category = '%s'), 0) AS %s_bytes,\n",
            sl_categories[i].name, sl_categories[i].name);
  fputs(at + sizeof mark - 1, stream);
  return sl_memory_file_close(&text, NULL);
}

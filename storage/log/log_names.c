/* Texts live in chunks to the end of the log: rows and phases point to them. */
#include "log_names.h"

#include "plugin/format/name.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STRINGS_MAX (4u * 1024 * 1024) /* ids a reader believes; the writer stops at a quarter of it */
#define TEXT_CHUNK (64u * 1024)

struct sl_log_fact {
  const char *key; /* in a chunk */
  uint32_t value;  /* string */
  UT_hash_handle hh;
};

struct sl_text_chunk {
  struct sl_text_chunk *next;
  size_t used;
  char text[TEXT_CHUNK];
};

static char *text_room(struct sl_log_names *names, size_t bytes) {
  struct sl_text_chunk *chunk = names->texts;
  if (!chunk || sizeof(chunk->text) - chunk->used < bytes) {
    chunk = malloc(sizeof(*chunk));
    if (!chunk)
      return NULL;
    chunk->next = names->texts;
    chunk->used = 0;
    names->texts = chunk;
  }
  char *room = chunk->text + chunk->used;
  chunk->used += bytes;
  return room;
}

/* Definitions are read more than once: what is there is clean. */
static bool is_known(const struct sl_log_names *names, const struct sl_event_string *string) {
  const char *known = sl_log_names_text(names, string->id);
  return known && strncmp(known, (const char *)(string + 1), string->length) == 0 && strlen(known) == string->length;
}

int sl_log_names_string(struct sl_log_names *names, const struct sl_event_string *string) {
  char clean[SL_NAME_MAX];
  if (string->id == 0 || string->id >= STRINGS_MAX || is_known(names, string))
    return 0;
  if (string->id >= names->string_count) {
    uint32_t count = string->id < 512 ? 1024 : string->id * 2;
    const char **larger = reallocarray(names->strings, count, sizeof(*larger));
    if (!larger)
      return -ENOMEM;
    memset(larger + names->string_count, 0, (count - names->string_count) * sizeof(*larger));
    names->strings = larger;
    names->string_count = count;
  }
  /* Cleaned again: a log is a file, and anybody may have written it. */
  const char *text = (const char *)(string + 1);
  size_t length = sl_name_clean(text, sl_name_clip(text, string->length), clean);
  char *copy = text_room(names, length + 1);
  if (!copy)
    return -ENOMEM;
  memcpy(copy, clean, length);
  copy[length] = '\0';
  names->strings[string->id] = copy;
  return 0;
}

/* A name is written before its use: a key without one is lost. */
int sl_log_names_info(struct sl_log_names *names, const struct sl_event_info *event) {
  const char *key = sl_log_names_text(names, event->key);
  struct sl_log_fact *fact;
  if (!key)
    return 0;
  HASH_FIND_STR(names->facts, key, fact);
  if (!fact) {
    fact = calloc(1, sizeof(*fact));
    if (!fact)
      return -ENOMEM;
    fact->key = key;
    HASH_ADD_KEYPTR(hh, names->facts, fact->key, strlen(fact->key), fact);
    if (SL_HASH_FAILED(fact)) {
      free(fact);
      return -ENOMEM;
    }
  }
  fact->value = event->value;
  return 0;
}

const char *sl_log_names_fact(const struct sl_log_names *names, const char *key) {
  struct sl_log_fact *fact;
  HASH_FIND_STR(names->facts, key, fact);
  if (!fact)
    return NULL;
  const char *value = sl_log_names_text(names, fact->value);
  return value ? value : "";
}

void sl_log_names_free(struct sl_log_names *names) {
  for (struct sl_text_chunk *chunk = names->texts, *next; chunk; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
  SL_HASH_FREE(names->facts);
  free(names->strings);
  *names = (struct sl_log_names){0};
}

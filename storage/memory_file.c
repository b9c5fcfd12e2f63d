/* A text that is written like a file, in memory. */
#include "memory_file.h"

#include <stdlib.h>
#include <string.h>

/* One byte more than the text stays free, for its end. */
static ssize_t append(void *cookie, const char *from, size_t bytes) {
  struct sl_memory_file *memory = cookie;
  if (!memory->failed && bytes >= memory->capacity - memory->bytes) {
    const size_t capacity = 2 * (memory->capacity + bytes);
    char *grown = realloc(memory->text, capacity);
    memory->failed = !grown;
    if (grown) {
      memory->text = grown;
      memory->capacity = capacity;
    }
  }
  if (memory->failed)
    return 0;
  memcpy(memory->text + memory->bytes, from, bytes);
  memory->bytes += bytes;
  return (ssize_t)bytes;
}

FILE *sl_memory_file_open(struct sl_memory_file *memory) {
  enum { FIRST = 128 };
  *memory = (struct sl_memory_file){.text = malloc(FIRST), .capacity = FIRST};
  if (memory->text)
    memory->file = fopencookie(memory, "w", (cookie_io_functions_t){.write = append});
  return memory->file;
}

char *sl_memory_file_close(struct sl_memory_file *memory, size_t *bytes) {
  const bool is_whole = memory->file && fclose(memory->file) == 0 && !memory->failed;
  char *text = memory->text;
  if (bytes)
    *bytes = is_whole ? memory->bytes : 0;
  if (is_whole) {
    text[memory->bytes] = '\0';
  } else {
    free(text);
    text = NULL;
  }
  *memory = (struct sl_memory_file){.file = NULL};
  return text;
}

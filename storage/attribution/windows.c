/*
 * Windows are closed in any order, those of one module and state from the newest: a module that calls itself has
 * several.
 */
#include "windows.h"

#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct window {
  const struct sl_item *opened;
  int64_t highest; /* number in the maxima */
  struct windows_of *of;
  struct window *older, *newer, *older_of_same;
};

struct windows_of { /* of one module and state */
  uint64_t key;     /* module << 8 | state */
  struct window *newest;
  UT_hash_handle hh;
};

static uint64_t key_of(const struct sl_item *item) {
  return (uint64_t)item->module << 8 | (uint64_t)item->state;
}

static struct windows_of *windows_find(const struct sl_windows *windows, const struct sl_item *item) {
  const uint64_t key = key_of(item);
  struct windows_of *of;
  HASH_FIND(hh, windows->by_key, &key, sizeof key, of);
  return of;
}

int sl_windows_open(struct sl_windows *windows, const struct sl_item *item, uint64_t value, const void *sample) {
  const uint64_t key = key_of(item);
  struct window *window = calloc(1, sizeof *window);
  struct windows_of *of = NULL;
  if (window)
    SL_HASH_FIND_OR_ADD(windows->by_key, key, key, of);
  if (!of) {
    free(window);
    return -ENOMEM;
  }
  *window = (struct window){
      .opened = item,
      .highest = sl_maxima_open(&windows->maxima, value, sample),
      .of = of,
      .older_of_same = of->newest,
  };
  of->newest = window;
  DL_PREPEND2(windows->newest, window, newer, older);
  return window->highest < 0 ? -ENOMEM : 0;
}

void sl_windows_raise(struct sl_windows *windows, uint64_t value, const void *sample) {
  if (windows->newest)
    sl_maxima_raise(&windows->maxima, value, sample);
}

static void window_free(struct sl_windows *windows, struct window *window) {
  DL_DELETE2(windows->newest, window, newer, older);
  window->of->newest = window->older_of_same; /* only the newest of its kind is ever closed */
  if (!window->of->newest) {
    HASH_DEL(windows->by_key, window->of);
    free(window->of);
  }
  free(window);
}

const struct sl_item *sl_windows_close(struct sl_windows *windows, const struct sl_item *item, void *sample) {
  const struct windows_of *of = item ? windows_find(windows, item) : NULL;
  struct window *window = item ? of ? of->newest : NULL : windows->newest;
  if (!window)
    return NULL;
  const struct sl_item *opened = window->opened;
  memcpy(sample, sl_maxima_of(&windows->maxima, window->highest).sample, windows->maxima.sample_bytes);
  sl_maxima_close(&windows->maxima, window->highest);
  window_free(windows, window);
  return opened;
}

void sl_windows_clear(struct sl_windows *windows) {
  while (windows->newest)
    window_free(windows, windows->newest);
  sl_maxima_clear(&windows->maxima);
}

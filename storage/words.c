/* Levenshtein's distance, a row at a time. */
#include "words.h"

#include <string.h>

int sl_word_distance(const char *a, const char *b) {
  int row[64];
  int width = (int)strnlen(b, 63);

  for (int j = 0; j <= width; j++)
    row[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= width; j++) {
      int best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      best = best < row[j] + 1 ? best : row[j] + 1;
      row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
    }
  }
  return row[width];
}

int sl_word_slip(const char *word) {
  return strlen(word) < 4 ? 1 : 2;
}

const char *sl_word_nearest(const char *word, const char *const *known, size_t count) {
  const char *nearest = NULL;
  int least = sl_word_slip(word) + 1;
  for (size_t i = 0; i < count; i++) {
    int distance = sl_word_distance(word, known[i]);
    if (distance < least) {
      least = distance;
      nearest = known[i];
    }
  }
  return nearest;
}

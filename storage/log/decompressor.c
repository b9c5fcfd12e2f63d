/* Keeps zstd's decompressors for the next log. */
#include "decompressor.h"

#include <pthread.h>
#include <stddef.h>
#include <zstd.h>

enum { SPARE = 16 }; /* of those in use at once by as many threads; each has some 160 KiB */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static ZSTD_DCtx *spare[SPARE];
static size_t spare_count;

ZSTD_DCtx *sl_decompressor_take(void) {
  ZSTD_DCtx *decompressor = NULL;
  pthread_mutex_lock(&mutex);
  if (spare_count)
    decompressor = spare[--spare_count];
  pthread_mutex_unlock(&mutex);
  return decompressor ? decompressor : ZSTD_createDCtx();
}

ZSTD_DCtx *sl_decompressor_give(ZSTD_DCtx *decompressor) {
  if (!decompressor)
    return NULL;
  pthread_mutex_lock(&mutex);
  if (spare_count < SPARE) {
    spare[spare_count++] = decompressor;
    decompressor = NULL;
  }
  pthread_mutex_unlock(&mutex);
  ZSTD_freeDCtx(decompressor);
  return NULL;
}

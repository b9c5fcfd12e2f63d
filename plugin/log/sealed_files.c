/*
 * With keep-last the first file keeps the beginning of the run for good. The others are small: what is dropped to make
 * room is no more of the run than it must be.
 */
#include "sealed_files.h"

#include "plugin/format/clock.h"
#include "plugin/process/config.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* At most; more would be more than the limit, as each holds a part of it. */
#define FILES_MAX (2 * SL_KEEP_LAST_FILE_PART)

static struct {
  const char *directory;
  uint64_t keep_last_bytes;     /* the limit; 0 without keep-last */
  uint64_t head_bytes, head_ns; /* of sealed.slogz; when it was full, else 0 */
  uint64_t bytes[FILES_MAX];    /* of each later file, by its index */
  uint32_t first_index, index;  /* of the oldest one that is there, and of the one that is written to; 0: none */
  uint64_t dropped_bytes;       /* of SL_DROPPED_NAME */
} sealed;

void sl_sealed_start(const char *directory, uint64_t max_bytes, bool keep_last) {
  sealed.directory = directory;
  sealed.keep_last_bytes = keep_last && max_bytes >= SL_KEEP_LAST_BYTES_MIN ? max_bytes : 0;
  if (keep_last && max_bytes && !sealed.keep_last_bytes)
    sl_say("SHARDLEDGER_AT_MAX=keep-last takes SHARDLEDGER_MAX_BYTES=%uMiB or more; with less, recording stops there",
           SL_KEEP_LAST_BYTES_MIN >> 20);
}

uint64_t sl_sealed_keep_last_bytes(void) {
  return sealed.keep_last_bytes;
}

static void path_of(uint32_t index, char *path, size_t size) {
  snprintf(path, size, "%s/" SL_SEALED_PREFIX "%08x" SL_SEALED_SUFFIX, sealed.directory, index);
}

/*
 * The first file gets the definitions, and everything that was recorded before it was full, also what is sealed later:
 * so all of that stays.
 */
static bool goes_to_head(const struct sl_segment_header *header) {
  return !sealed.keep_last_bytes || sealed.head_ns == 0 || header->thread == 0 || header->base_ns < sealed.head_ns;
}

void sl_sealed_path(const struct sl_segment_header *header, char *path, size_t size) {
  if (goes_to_head(header))
    snprintf(path, size, "%s/" SL_SEALED_NAME, sealed.directory);
  else
    path_of(sealed.index, path, size);
}

static void begin_file(void) {
  sealed.index++;
  sealed.bytes[sealed.index % FILES_MAX] = 0;
}

void sl_sealed_grew(const struct sl_segment_header *header, uint64_t bytes) {
  if (!sealed.keep_last_bytes)
    return;
  if (goes_to_head(header)) {
    sealed.head_bytes += bytes;
    if (sealed.head_ns == 0 && sealed.head_bytes >= sealed.keep_last_bytes / SL_KEEP_LAST_HEAD_PART) {
      sealed.head_ns = sl_clock_ns(CLOCK_REALTIME);
      begin_file();
      sealed.first_index = sealed.index;
    }
    return;
  }
  uint64_t *file = &sealed.bytes[sealed.index % FILES_MAX];
  *file += bytes;
  if (*file >= sealed.keep_last_bytes / SL_KEEP_LAST_FILE_PART && sealed.index - sealed.first_index + 1 < FILES_MAX)
    begin_file();
}

/* The oldest go first, so one question is enough where nothing has gone. */
int64_t sl_sealed_recount(void) {
  char path[4096];
  struct stat status;
  int64_t freed = 0;
  for (; sealed.first_index < sealed.index; sealed.first_index++) {
    path_of(sealed.first_index, path, sizeof(path));
    if (stat(path, &status) == 0 || errno != ENOENT)
      break;
    freed += (int64_t)sealed.bytes[sealed.first_index % FILES_MAX];
  }
  snprintf(path, sizeof(path), "%s/" SL_DROPPED_NAME, sealed.directory);
  const uint64_t bytes = stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
  freed += (int64_t)sealed.dropped_bytes - (int64_t)bytes;
  sealed.dropped_bytes = bytes;
  return freed;
}

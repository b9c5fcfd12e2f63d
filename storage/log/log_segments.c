/*
 * The index of a log's segments. While the process writes, a segment may be raw at one moment and sealed at the next,
 * or be dropped: the order in which a look takes names and frames, and a second look, make sure that none is missed.
 */
#include "log_segments.h"

#include "sealed_frames.h"
#include "segment_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DROPPED_BYTES_MAX (16u << 20)

static bool is_segment_name(const char *name) {
  return strspn(name, "0123456789abcdef") == 8 && strcmp(name + 8, SL_SEGMENT_SUFFIX) == 0;
}

static int index_raw(struct sl_segments *segments, const char *name, struct sl_error *error) {
  int fd = sl_segment_file_open(segments, name);
  if (fd < 0) { /* Sealed a moment ago, else not readable. */
    if (fd != -ENOENT)
      sl_segments_damaged(segments, 0);
    return sl_segment_file_refuse(segments, name, error);
  }
  int r = 0;
  const uint64_t size = sl_file_size(fd);
  struct sl_segment_header header = {0};
  if (size == 0)
    goto finish; /* Made and never filled: the process was killed in between. */
  enum finding finding = sl_file_read(fd, &header, sizeof(header), 0) ? DAMAGED : sl_segment_judge(&header);
  if (finding == NEWER)
    r = sl_error_set(error, -EPROTO, "%s was recorded by a newer version (log version %u; this one reads %u)",
                     segments->directory, header.version, SL_LOG_VERSION);
  else if (finding == DAMAGED)
    sl_segments_damaged(segments, size);
  else if (finding == FOUND &&
           (r = sl_segments_take(
                segments, &header,
                (struct sl_segment_entry){.frame_at = SL_NOT_THERE, .disk_bytes = size, .raw = true})) < 0)
    sl_no_memory(error);

finish:
  close(fd);
  return r < 0 ? r : sl_segment_file_refuse(segments, name, error);
}

static int compare_numbers(const void *left, const void *right) {
  const struct sl_segment_entry *a = left, *b = right;
  if (a->number != b->number)
    return a->number < b->number ? -1 : 1;
  return (a->frame_at > b->frame_at) - (a->frame_at < b->frame_at); /* frames before raw files */
}

static int compare_places(const void *left, const void *right) {
  const struct sl_segment_entry *a = left, *b = right;
  if (a->thread != b->thread)
    return a->thread < b->thread ? -1 : 1;
  if (a->sequence != b->sequence)
    return a->sequence < b->sequence ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

/* A file that got here from another process's log is damage. The process is the one of most segments. */
static void drop_strangers(struct sl_segments *segments) {
  uint64_t key = 0;
  size_t votes = 0;
  for (size_t i = 0; i < segments->count; i++) { /* Boyer and Moore's majority vote */
    if (votes == 0)
      key = segments->entries[i].process_key;
    votes += segments->entries[i].process_key == key ? 1 : (size_t)-1;
  }
  segments->process_key = key;
  size_t kept = 0;
  for (size_t i = 0; i < segments->count; i++) {
    const struct sl_segment_entry entry = segments->entries[i];
    if (entry.process_key == key) {
      segments->entries[kept++] = entry;
    } else {
      segments->damaged++;
      segments->damaged_bytes += entry.disk_bytes;
    }
  }
  segments->count = kept;
}

/* A segment that was sealed, but whose raw file was not removed any more, is there twice. */
static void drop_duplicates(struct sl_segments *segments) {
  if (segments->count == 0)
    return;
  qsort(segments->entries, segments->count, sizeof(*segments->entries), compare_numbers);
  size_t kept = 0;
  for (size_t i = 0; i < segments->count; i++) {
    struct sl_segment_entry *last = kept ? &segments->entries[kept - 1] : NULL;
    if (last && last->number == segments->entries[i].number) {
      last->raw |= segments->entries[i].raw;
      segments->disk_bytes -= segments->entries[i].disk_bytes;
    } else {
      segments->entries[kept++] = segments->entries[i];
    }
  }
  segments->count = kept;
  qsort(segments->entries, segments->count, sizeof(*segments->entries), compare_places);
}

/* One look at the directory: names first and frames after, so a segment that is sealed meanwhile is in one of them. */
static int look(struct sl_segments *segments, struct sl_error *error) {
  DIR *listing = sl_segments_list(segments);
  if (!listing)
    return sl_error_set(error, -errno, "can't open %s: %s", segments->directory, strerror(errno));
  segments->damaged -= segments->raw_damaged;
  segments->damaged_bytes -= segments->raw_damaged_bytes;
  const uint64_t damaged = segments->damaged, damaged_bytes = segments->damaged_bytes;
  int r = 0;
  for (struct dirent *file; r == 0 && (file = readdir(listing));)
    if (is_segment_name(file->d_name))
      r = index_raw(segments, file->d_name, error);
  segments->raw_damaged = segments->damaged - damaged;
  segments->raw_damaged_bytes = segments->damaged_bytes - damaged_bytes;
  if (r == 0)
    r = sl_sealed_index(segments, listing, error);
  closedir(listing);
  if (r == 0 && !segments->process_key)
    drop_strangers(segments);
  if (r == 0)
    drop_duplicates(segments);
  return r;
}

/*
 * Reads what stands for the part that was dropped. *identity tells two states of the file apart; 0: there is none.
 * Writers put a new file into its place before they remove what it stands for.
 */
static int read_dropped(struct sl_segments *segments, uint64_t *identity, struct sl_error *error) {
  struct sl_segment_header header;
  struct stat info;
  sl_records_free(&segments->dropped);
  *identity = 0;
  int fd = sl_segment_file_open(segments, SL_DROPPED_NAME);
  if (fd < 0)
    return sl_segment_file_refuse(segments, SL_DROPPED_NAME, error);
  const uint64_t size = sl_file_size(fd), bytes = size - sizeof(header);
  if (fstat(fd, &info) == 0)
    *identity = (uint64_t)info.st_ino ^ (uint64_t)info.st_mtim.tv_sec << 32 ^ (uint64_t)info.st_mtim.tv_nsec;
  size_t room = 0;
  char *data = size > sizeof(header) && size <= DROPPED_BYTES_MAX ? sl_file_room(NULL, &room, bytes + 8) : NULL;
  if (data && sl_file_read(fd, &header, sizeof(header), 0) == 0 && sl_segment_judge(&header) == FOUND &&
      header.thread == SL_DROPPED_THREAD && sl_file_read(fd, data, bytes, sizeof(header)) == 0) {
    segments->dropped = (struct sl_records){.data = data, .size = bytes + 8, .bytes = bytes};
    segments->dropped_base_ns = header.base_ns;
    segments->process_key = header.process_key;
  } else {
    sl_segments_damaged(segments, size);
    free(data);
  }
  close(fd);
  return sl_segment_file_refuse(segments, SL_DROPPED_NAME, error);
}

static int index_directory(const char *directory, struct sl_segments *out, struct sl_error *error) {
  uint64_t before, after;
  int r = 0;
  for (int attempt = 0; attempt < 5; attempt++) {
    *out = (struct sl_segments){.directory = strdup(directory),
                                .place = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!out->directory)
      r = sl_no_memory(error);
    else if (out->place < 0)
      r = sl_error_set(error, -errno, "can't open %s: %s", directory, strerror(errno));
    else if ((r = read_dropped(out, &before, error)) == 0)
      r = look(out, error);
    if (r < 0)
      break;
    struct sl_segments now = {.directory = out->directory, .place = out->place};
    r = read_dropped(&now, &after, error);
    sl_records_free(&now.dropped);
    if (r < 0)
      break;
    if (after == before)
      return 0;
    /* Files that were looked for may have been dropped meanwhile. */
    r = sl_error_set(error, -EAGAIN, "%s: parts of the log were dropped while it was read; ask again", directory);
    sl_segments_close(out);
  }
  sl_segments_close(out);
  return r;
}

int sl_segments_update(struct sl_segments *segments, struct sl_error *error) {
  size_t kept = 0;
  for (size_t i = 0; i < segments->count; i++)
    if (!segments->entries[i].done)
      segments->entries[kept++] = segments->entries[i];
  segments->count = kept;
  return look(segments, error);
}

static bool has_hole(const struct sl_segments *segments) {
  for (size_t i = 0; i < segments->count; i++) {
    const struct sl_segment_entry *entry = &segments->entries[i];
    const bool is_first = i == 0 || entry[-1].thread != entry->thread;
    if (entry->sequence != (is_first ? 0 : entry[-1].sequence + 1))
      return true;
  }
  return false;
}

/* Keeps of `later` only what is not younger, in its thread, than what `earlier` saw. */
static void drop_younger(struct sl_segments *later, const struct sl_segments *earlier) {
  size_t kept = 0, e = 0;
  for (size_t i = 0; i < later->count; i++) {
    const struct sl_segment_entry *entry = &later->entries[i];
    while (e < earlier->count &&
           (earlier->entries[e].thread < entry->thread ||
            (earlier->entries[e].thread == entry->thread && earlier->entries[e].sequence < entry->sequence)))
      e++;
    if (e < earlier->count && earlier->entries[e].thread == entry->thread)
      later->entries[kept++] = *entry;
    else
      later->disk_bytes -= entry->disk_bytes;
  }
  later->count = kept;
}

int sl_segments_open(const char *directory, struct sl_segments *out, struct sl_error *error) {
  int r = index_directory(directory, out, error);
  if (r == 0 && has_hole(out)) {
    /*
     * While a log is written, a look at its directory may see a segment and miss an older one. The second look sees
     * everything that is older than what the first one saw; what is missing now is missing.
     */
    struct sl_segments again;
    r = index_directory(directory, &again, error);
    if (r == 0)
      drop_younger(&again, out);
    sl_segments_close(out);
    *out = again;
  }
  if (r == 0 && out->count == 0) {
    r = out->damaged ? sl_error_set(error, -EBADMSG, "%s holds no readable log", directory)
                     : sl_error_set(error, -ENODATA, "%s holds no log", directory);
    sl_segments_close(out);
  }
  return r;
}

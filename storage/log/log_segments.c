#include "log_segments.h"

#include "plugin/format/events.h"
#include "plugin/format/log_format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a reader believes, so that what it takes from a few bytes has a bound. No writer makes more. */
#define RECORDS_MAX (SL_SEGMENT_BYTES - sizeof(struct sl_segment_header))
#define COMPRESSED_MAX ZSTD_COMPRESSBOUND(SL_SEGMENT_BYTES)
#define DROPPED_BYTES_MAX (16u << 20)
#define NEWER_BYTES_MAX (16u << 20) /* of a frame of another version, which may make larger ones */
/* What may be read in vain, behind frame headers that are wrong, before the rest of a file counts as damaged. */
#define VAIN_BYTES_MAX(size) ((size) + (64u << 20))

enum finding { FOUND, NOBODYS, DAMAGED, NEWER };

/*
 * Why a file could not be read for now: the disk fails, or there are no descriptors, no memory, no permission. That
 * says nothing about what is in it, so it must not count as damage. Noted where it happens and looked at once a file is
 * done with; 0: nothing of the kind.
 */
static _Thread_local int unreadable;

/* Reads exactly that many bytes, or fails: -ENODATA at the end of the file. */
static int read_at(int fd, void *out, size_t bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pread(fd, (char *)out + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      unreadable = errno;
    if (n <= 0)
      return n < 0 ? -errno : -ENODATA;
    done += (size_t)n;
  }
  return 0;
}

static uint64_t file_size(int fd) {
  struct stat info;
  if (fstat(fd, &info) < 0) {
    unreadable = errno;
    return 0;
  }
  return S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

static void *grow(void *memory, size_t *size, size_t need) {
  if (need <= *size)
    return memory;
  void *larger = realloc(memory, need);
  if (larger)
    *size = need;
  else
    unreadable = ENOMEM;
  return larger;
}

/* ---- the index ---- */

static int entry_add(struct sl_segments *segments, const struct sl_segment_entry *entry) {
  if ((segments->count & (segments->count - 1)) == 0) {
    size_t count = segments->count ? segments->count * 2 : 64;
    struct sl_segment_entry *larger = reallocarray(segments->entries, count, sizeof(*larger));
    if (!larger)
      return -ENOMEM;
    segments->entries = larger;
  }
  segments->entries[segments->count++] = *entry;
  segments->disk_bytes += entry->disk_bytes;
  return 0;
}

static void count_damage(struct sl_segments *segments, uint64_t bytes) {
  segments->damaged++;
  segments->damaged_bytes += bytes;
  segments->disk_bytes += bytes;
}

/* A segment header is believed when its check is right; the version comes after, as a newer one has a check too. */
static enum finding judge_header(const struct sl_segment_header *header) {
  if (header->check == 0)
    return header->magic == SL_SEGMENT_MAGIC || header->magic == 0 ? NOBODYS : DAMAGED;
  if (header->magic != SL_SEGMENT_MAGIC ||
      header->check != XXH3_64bits(header, offsetof(struct sl_segment_header, check)))
    return DAMAGED;
  return header->version == SL_LOG_VERSION ? FOUND : NEWER;
}

static int entry_take(struct sl_segments *segments, const struct sl_segment_header *header,
                      struct sl_segment_entry entry) {
  if ((segments->process_key && header->process_key != segments->process_key) || header->thread == SL_DROPPED_THREAD) {
    count_damage(segments, entry.disk_bytes);
    return 0;
  }
  entry.number = header->number;
  entry.thread = header->thread;
  entry.sequence = header->sequence;
  entry.tid = header->tid;
  entry.base_ns = header->base_ns;
  entry.process_key = header->process_key;
  return entry_add(segments, &entry);
}

/* Reads the compressed bytes behind a frame header at `at` into segments->compressed; false when they are not right. */
static bool frame_read(struct sl_segments *segments, int fd, const struct sl_frame_header *frame, uint64_t at) {
  const uint64_t body = at + sizeof(*frame) + sizeof(struct sl_segment_header);
  if (frame->compressed_bytes > NEWER_BYTES_MAX) /* no writer makes such */
    return false;
  void *room = grow(segments->compressed, &segments->compressed_size, frame->compressed_bytes);
  if (!room)
    return false;
  segments->compressed = room;
  const uint64_t seed = XXH3_64bits(frame, offsetof(struct sl_frame_header, check));
  return read_at(fd, room, frame->compressed_bytes, body) == 0 &&
         frame->check == XXH3_64bits_withSeed(room, frame->compressed_bytes, seed);
}

/* Does a frame start here, or nothing at all? */
static bool is_frame_at(int fd, uint64_t at, uint64_t size) {
  uint32_t magic;
  return size - at < sizeof(magic) || (read_at(fd, &magic, sizeof(magic), at) == 0 && magic == SL_FRAME_MAGIC);
}

/* *vain counts what was read to no avail. */
static enum finding judge_frame(struct sl_segments *segments, int fd, const struct sl_frame_header *frame, uint64_t at,
                                uint64_t size, struct sl_segment_header *header, uint64_t *vain) {
  const uint64_t body = at + sizeof(*frame) + sizeof(*header);
  if (frame->magic != SL_FRAME_MAGIC || body > size || frame->compressed_bytes > size - body)
    return DAMAGED;
  if (frame->version == SL_LOG_VERSION) {
    if (frame->compressed_bytes > COMPRESSED_MAX || frame->raw_bytes > RECORDS_MAX ||
        read_at(fd, header, sizeof(*header), at + sizeof(*frame)))
      return DAMAGED;
    const enum finding finding = judge_header(header);
    if (finding == NOBODYS || finding == DAMAGED || header->number != frame->number)
      return DAMAGED;
    /* A frame whose length is wrong must not swallow its successors: what follows it shows, or else its check. */
    if (is_frame_at(fd, body + frame->compressed_bytes, size) || frame_read(segments, fd, frame, at))
      return finding;
  } else if (frame->compressed_bytes > NEWER_BYTES_MAX) {
    return DAMAGED;
  } else if (frame_read(segments, fd, frame, at)) {
    return NEWER;
  }
  *vain += frame->compressed_bytes;
  return DAMAGED;
}

/* Offset of the next frame magic from at on, or size. Only after damage. */
static uint64_t find_frame(int fd, uint64_t at, uint64_t size) {
  static const uint32_t magic = SL_FRAME_MAGIC;
  char window[65536];
  size_t want = 512; /* the next one may be near, again and again */
  while (at + sizeof(magic) <= size) {
    const off_t data = lseek(fd, (off_t)at, SEEK_DATA); /* over what a sparse file does not have */
    if (data < 0 && errno == ENXIO)
      break;
    if (data > (off_t)at)
      at = (uint64_t)data;
    if (size < sizeof(magic) || at > size - sizeof(magic))
      break;
    const size_t bytes = size - at < want ? size - at : want;
    if (read_at(fd, window, bytes, at))
      break;
    want = want < sizeof(window) ? 2 * want : want;
    const char *hit = memmem(window, bytes, &magic, sizeof(magic));
    if (hit)
      return at + (uint64_t)(hit - window);
    at += bytes - (sizeof(magic) - 1);
  }
  return size;
}

/*
 * Is the last frame only cut short? The process was killed while it sealed a segment, or is just doing so, and the raw
 * file is still there. The frame goes into the index all the same: it is damage when there is no such file.
 */
static bool is_torn(int fd, const struct sl_frame_header *frame, uint64_t at, uint64_t size,
                    struct sl_segment_header *header) {
  const uint64_t body = at + sizeof(*frame) + sizeof(*header);
  return frame->magic == SL_FRAME_MAGIC && body <= size && frame->compressed_bytes > size - body &&
         read_at(fd, header, sizeof(*header), at + sizeof(*frame)) == 0 && judge_header(header) == FOUND &&
         header->number == frame->number;
}

/* Looks at the frames that the file has got since the last time. */
static int index_frames(struct sl_segments *segments, uint32_t index, struct sl_error *error) {
  struct sl_sealed_file *file = &segments->sealed[index];
  const uint64_t size = file_size(file->fd);
  uint64_t at = file->end, vain = 0;
  while (at < size) {
    struct sl_frame_header frame;
    struct sl_segment_header header;
    file->end = at;
    if (size - at < sizeof(frame) + sizeof(header) || read_at(file->fd, &frame, sizeof(frame), at))
      break;
    enum finding finding = judge_frame(segments, file->fd, &frame, at, size, &header, &vain);
    if (finding == NEWER)
      return sl_error_set(error, -EPROTO, "%s was recorded by a newer version (log version %u; this one reads %u)",
                          segments->directory, frame.version == SL_LOG_VERSION ? header.version : frame.version,
                          SL_LOG_VERSION);
    const uint64_t bytes = sizeof(frame) + sizeof(header) + frame.compressed_bytes;
    if (finding == DAMAGED) {
      const uint64_t next = vain > VAIN_BYTES_MAX(size) ? size : find_frame(file->fd, at + 1, size);
      if (next == size && is_torn(file->fd, &frame, at, size, &header))
        return entry_take(segments, &header,
                          (struct sl_segment_entry){.frame_at = at, .file = index, .disk_bytes = size - at});
      count_damage(segments, next - at);
      at = next;
      continue;
    }
    int r =
        entry_take(segments, &header, (struct sl_segment_entry){.frame_at = at, .file = index, .disk_bytes = bytes});
    if (r < 0)
      return sl_error_set(error, r, "out of memory");
    at += bytes;
  }
  file->end = at;
  return 0;
}

static bool is_segment_name(const char *name) {
  return strspn(name, "0123456789abcdef") == 8 && strcmp(name + 8, SL_SEGMENT_SUFFIX) == 0;
}

/* sealed.slogz, or sealed-NNNNNNNN.slogz. */
static bool is_sealed_name(const char *name) {
  const size_t prefix = strlen(SL_SEALED_PREFIX);
  return strcmp(name, SL_SEALED_NAME) == 0 ||
         (strncmp(name, SL_SEALED_PREFIX, prefix) == 0 && strspn(name + prefix, "0123456789abcdef") == 8 &&
          strcmp(name + prefix + 8, SL_SEALED_SUFFIX) == 0);
}

static int open_file(const struct sl_segments *segments, const char *name) {
  int fd = openat(segments->place, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENXIO) /* gone, a link, a socket */
    unreadable = errno;
  return fd < 0 ? -errno : fd;
}

/* Whether the file that was just worked on could not be read for now; 0, or the sentence. */
static int refuse_unreadable(const struct sl_segments *segments, const char *name, struct sl_error *error) {
  const int reason = unreadable;
  unreadable = 0;
  if (reason == ENOMEM)
    return sl_error_set(error, -ENOMEM, "out of memory while reading %s/%s", segments->directory, name);
  return reason ? sl_error_set(error, -SL_LOG_UNREADABLE, "%s/%s can't be read: %s", segments->directory, name,
                               strerror(reason))
                : 0;
}

static int index_raw(struct sl_segments *segments, const char *name, struct sl_error *error) {
  int fd = open_file(segments, name);
  if (fd < 0) { /* Sealed a moment ago, else not readable. */
    if (fd != -ENOENT)
      count_damage(segments, 0);
    return refuse_unreadable(segments, name, error);
  }
  int r = 0;
  const uint64_t size = file_size(fd);
  struct sl_segment_header header = {0};
  if (size == 0)
    goto finish; /* Made and never filled: the process was killed in between. */
  enum finding finding = read_at(fd, &header, sizeof(header), 0) ? DAMAGED : judge_header(&header);
  if (finding == NEWER)
    r = sl_error_set(error, -EPROTO, "%s was recorded by a newer version (log version %u; this one reads %u)",
                     segments->directory, header.version, SL_LOG_VERSION);
  else if (finding == DAMAGED)
    count_damage(segments, size);
  else if (finding == FOUND &&
           (r = entry_take(segments, &header,
                           (struct sl_segment_entry){.frame_at = SL_NOT_THERE, .disk_bytes = size, .raw = true})) < 0)
    sl_error_set(error, r, "out of memory");

finish:
  close(fd);
  return r < 0 ? r : refuse_unreadable(segments, name, error);
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

/* Opens a sealed file, unless it is already. One that can't be, as it has gone, is not there. */
static int sealed_open(struct sl_segments *segments, const char *name, struct sl_error *error) {
  struct sl_sealed_file *place = NULL;
  for (uint32_t i = 0; i < segments->sealed_count; i++) {
    struct sl_sealed_file *file = &segments->sealed[i];
    if (file->fd < 0) {
      place = file;
    } else if (strcmp(file->name, name) == 0) {
      file->seen = true;
      return 0;
    }
  }
  struct sl_sealed_file opened = {.fd = open_file(segments, name), .seen = true};
  if (opened.fd < 0)
    return refuse_unreadable(segments, name, error);
  if (!place) {
    struct sl_sealed_file *larger =
        reallocarray(segments->sealed, segments->sealed_count + 1, sizeof(*segments->sealed));
    if (!larger) {
      close(opened.fd);
      return sl_no_memory(error);
    }
    segments->sealed = larger;
    place = &larger[segments->sealed_count++];
  }
  snprintf(opened.name, sizeof(opened.name), "%s", name);
  *place = opened;
  return 0;
}

/* A file that has gone is closed when nothing more is to be read from it. */
static void sealed_forget(struct sl_segments *segments, uint32_t index) {
  struct sl_sealed_file *file = &segments->sealed[index];
  for (size_t i = 0; i < segments->count; i++)
    if (segments->entries[i].frame_at != SL_NOT_THERE && segments->entries[i].file == index &&
        !segments->entries[i].done)
      return;
  close(file->fd);
  file->fd = -1;
}

static int index_sealed(struct sl_segments *segments, DIR *listing, struct sl_error *error) {
  int r = 0;
  for (uint32_t i = 0; i < segments->sealed_count; i++)
    segments->sealed[i].seen = false;
  rewinddir(listing);
  for (struct dirent *file; r == 0 && (file = readdir(listing));)
    if (is_sealed_name(file->d_name))
      r = sealed_open(segments, file->d_name, error);
  for (uint32_t i = 0; i < segments->sealed_count && r == 0; i++) {
    if (segments->sealed[i].fd < 0)
      continue;
    r = index_frames(segments, i, error);
    if (r == 0)
      r = refuse_unreadable(segments, segments->sealed[i].name, error);
    if (r == 0 && !segments->sealed[i].seen)
      sealed_forget(segments, i);
  }
  return r;
}

static DIR *listing_open(const struct sl_segments *segments) {
  int again = openat(segments->place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = again < 0 ? NULL : fdopendir(again);
  if (!listing && again >= 0)
    close(again);
  return listing;
}

/* One look at the directory: names first and frames after, so a segment that is sealed meanwhile is in one of them. */
static int look(struct sl_segments *segments, struct sl_error *error) {
  DIR *listing = listing_open(segments);
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
    r = index_sealed(segments, listing, error);
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
  int fd = open_file(segments, SL_DROPPED_NAME);
  if (fd < 0)
    return refuse_unreadable(segments, SL_DROPPED_NAME, error);
  const uint64_t size = file_size(fd), bytes = size - sizeof(header);
  if (fstat(fd, &info) == 0)
    *identity = (uint64_t)info.st_ino ^ (uint64_t)info.st_mtim.tv_sec << 32 ^ (uint64_t)info.st_mtim.tv_nsec;
  size_t room = 0;
  char *data = size > sizeof(header) && size <= DROPPED_BYTES_MAX ? grow(NULL, &room, bytes + 8) : NULL;
  if (data && read_at(fd, &header, sizeof(header), 0) == 0 && judge_header(&header) == FOUND &&
      header.thread == SL_DROPPED_THREAD && read_at(fd, data, bytes, sizeof(header)) == 0) {
    segments->dropped = (struct sl_records){.data = data, .size = bytes + 8, .bytes = bytes};
    segments->dropped_base_ns = header.base_ns;
    segments->process_key = header.process_key;
  } else {
    count_damage(segments, size);
    free(data);
  }
  close(fd);
  return refuse_unreadable(segments, SL_DROPPED_NAME, error);
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

/* ---- loading ---- */

/* The first `from` bytes are there already. */
static int load_raw(const struct sl_segments *segments, uint32_t number, struct sl_records *records, size_t from) {
  char name[32];
  snprintf(name, sizeof(name), "%08x" SL_SEGMENT_SUFFIX, number);
  int fd = open_file(segments, name);
  if (fd < 0)
    return fd;
  int r = -EBADMSG;
  struct sl_segment_header header;
  struct stat status = {0};
  uint64_t bytes = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
  if (bytes > SL_SEGMENT_BYTES)
    bytes = SL_SEGMENT_BYTES;
  if (read_at(fd, &header, sizeof(header), 0) || judge_header(&header) != FOUND || header.number != number)
    goto finish;
  bytes -= sizeof(header);
  if (bytes < from) /* cut to what is in it */
    bytes = from;
  char *data = grow(records->data, &records->size, bytes + 8);
  r = data ? read_at(fd, data + from, bytes - from, sizeof(header) + from) : -ENOMEM;
  if (data)
    records->data = data;
  if (r == 0) {
    records->bytes = bytes;
    records->checked = false;
    records->modified_ns = (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec;
  }

finish:
  close(fd);
  return r;
}

/* Undoes SL_FRAME_DIFFERENCES. Stops at a record that is not whole, as the reader will. */
static void records_decode(char *records, size_t bytes) {
  uint32_t delta = 0, sequence = 0;
  for (size_t at = 0; at + sizeof(struct sl_record_header) <= bytes;) {
    struct sl_record_header *header = (void *)(records + at);
    if (header->words == 0 || header->words * 8u > bytes - at)
      break;
    header->delta_ns = delta += header->delta_ns;
    struct sl_event_allocator *event = (void *)(header + 1);
    if (header->type == SL_EVENT_allocator && header->words * 8u >= sizeof(*header) + sizeof(*event))
      event->sequence = sequence += event->sequence;
    at += header->words * 8u;
  }
}

static int load_frame(struct sl_segments *segments, const struct sl_segment_entry *entry, struct sl_records *records) {
  struct sl_frame_header frame;
  const int fd = segments->sealed[entry->file].fd;
  int r = read_at(fd, &frame, sizeof(frame), entry->frame_at);
  /* The file may have changed since it was indexed, so the lengths are looked at again. */
  if (r < 0 || frame.magic != SL_FRAME_MAGIC || frame.raw_bytes > RECORDS_MAX ||
      frame.compressed_bytes > COMPRESSED_MAX)
    return r < 0 ? r : -EBADMSG;
  char *data = grow(records->data, &records->size, frame.raw_bytes + 8);
  if (!data)
    return -ENOMEM;
  records->data = data;
  if (!frame_read(segments, fd, &frame, entry->frame_at))
    return -EBADMSG;
  size_t bytes = ZSTD_decompress(data, frame.raw_bytes, segments->compressed, frame.compressed_bytes);
  if (ZSTD_getErrorCode(bytes) == ZSTD_error_memory_allocation)
    unreadable = ENOMEM;
  if (ZSTD_isError(bytes) || bytes != frame.raw_bytes || frame.encoding > SL_FRAME_DIFFERENCES)
    return -EBADMSG;
  if (frame.encoding == SL_FRAME_DIFFERENCES)
    records_decode(data, bytes);
  records->bytes = bytes;
  records->checked = true;
  return 0;
}

/* The segment was sealed after it was indexed: its frame is among the new ones. */
static int load_new_frame(struct sl_segments *segments, uint32_t number, struct sl_records *records,
                          struct sl_error *error) {
  struct sl_segments later = {.directory = segments->directory, .place = segments->place};
  DIR *listing = listing_open(segments);
  if (!listing)
    return -errno;
  for (uint32_t i = 0; i < segments->sealed_count; i++) {
    const uint32_t count = later.sealed_count;
    if (segments->sealed[i].fd >= 0 && sealed_open(&later, segments->sealed[i].name, error) == 0 &&
        later.sealed_count > count)
      later.sealed[count].end = segments->sealed[i].end;
  }
  int r = index_sealed(&later, listing, error);
  closedir(listing);
  const struct sl_segment_entry *found = NULL;
  for (size_t i = 0; i < later.count && !found; i++)
    if (later.entries[i].number == number)
      found = &later.entries[i];
  r = found ? load_frame(&later, found, records) : r < 0 ? r : -ENOENT;
  later.directory = NULL;
  later.place = -1;
  sl_segments_close(&later);
  return r;
}

int sl_segments_load(struct sl_segments *segments, const struct sl_segment_entry *entry, struct sl_records *records,
                     struct sl_error *error) {
  char name[32];
  int r = -ENOENT;
  unreadable = 0;
  records->bytes = 0;
  if (entry->frame_at != SL_NOT_THERE)
    r = load_frame(segments, entry, records);
  if (r < 0 && entry->raw)
    r = load_raw(segments, entry->number, records, 0);
  if (r == -ENOENT && entry->raw)
    r = load_new_frame(segments, entry->number, records, error);
  if (r == 0) {
    unreadable = 0; /* the other copy could be */
    return 0;
  }
  records->bytes = 0;
  snprintf(name, sizeof(name), "%08x" SL_SEGMENT_SUFFIX, entry->number);
  int failed =
      refuse_unreadable(segments, entry->frame_at == SL_NOT_THERE ? name : segments->sealed[entry->file].name, error);
  return failed < 0 ? failed : r;
}

int sl_segments_load_more(struct sl_segments *segments, const struct sl_segment_entry *entry,
                          struct sl_records *records, size_t from) {
  /* The raw file first: a frame is of no use here until it is whole, and has nothing more than the file had. */
  int r = entry->raw ? load_raw(segments, entry->number, records, from) : -ENOENT;
  return r == -ENOENT && entry->frame_at != SL_NOT_THERE ? load_frame(segments, entry, records) : r;
}

void sl_records_free(struct sl_records *records) {
  free(records->data);
  *records = (struct sl_records){0};
}

void sl_segments_close(struct sl_segments *segments) {
  for (uint32_t i = 0; i < segments->sealed_count; i++)
    if (segments->sealed[i].fd >= 0)
      close(segments->sealed[i].fd);
  free(segments->sealed);
  sl_records_free(&segments->dropped);
  if (segments->place > 0) /* 0: it was never opened */
    close(segments->place);
  free(segments->directory);
  free(segments->entries);
  free(segments->compressed);
  *segments = (struct sl_segments){0};
}

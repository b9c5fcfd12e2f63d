/*
 * The sealed files of a log, frame by frame. A file may be cut short or damaged anywhere, and still be written: what
 * is no frame is passed over up to the next one, within a bound.
 */
#include "sealed_frames.h"

#include "segment_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEWER_BYTES_MAX (16u << 20) /* of a frame of another version, which may make larger ones */
/* What may be read in vain, behind frame headers that are wrong, before the rest of a file counts as damaged. */
#define VAIN_BYTES_MAX(size) ((size) + (64u << 20))

bool sl_frame_read(struct sl_segments *segments, int fd, const struct sl_frame_header *frame, uint64_t at) {
  const uint64_t body = at + sizeof(*frame) + sizeof(struct sl_segment_header);
  if (frame->compressed_bytes > NEWER_BYTES_MAX) /* no writer makes such */
    return false;
  void *room = sl_file_room(segments->compressed, &segments->compressed_size, frame->compressed_bytes);
  if (!room)
    return false;
  segments->compressed = room;
  const uint64_t seed = XXH3_64bits(frame, offsetof(struct sl_frame_header, check));
  return sl_file_read(fd, room, frame->compressed_bytes, body) == 0 &&
         frame->check == XXH3_64bits_withSeed(room, frame->compressed_bytes, seed);
}

/* Does a frame start here, or nothing at all? */
static bool is_frame_at(int fd, uint64_t at, uint64_t size) {
  uint32_t magic;
  return size - at < sizeof(magic) || (sl_file_read(fd, &magic, sizeof(magic), at) == 0 && magic == SL_FRAME_MAGIC);
}

/* *vain counts what was read to no avail. */
static enum finding judge_frame(struct sl_segments *segments, int fd, const struct sl_frame_header *frame, uint64_t at,
                                uint64_t size, struct sl_segment_header *header, uint64_t *vain) {
  const uint64_t body = at + sizeof(*frame) + sizeof(*header);
  if (frame->magic != SL_FRAME_MAGIC || body > size || frame->compressed_bytes > size - body)
    return DAMAGED;
  if (frame->version == SL_LOG_VERSION) {
    if (frame->compressed_bytes > COMPRESSED_MAX || frame->raw_bytes > RECORDS_MAX ||
        sl_file_read(fd, header, sizeof(*header), at + sizeof(*frame)))
      return DAMAGED;
    const enum finding finding = sl_segment_judge(header);
    if (finding == NOBODYS || finding == DAMAGED || header->number != frame->number)
      return DAMAGED;
    /* A frame whose length is wrong must not swallow its successors: what follows it shows, or else its check. */
    if (is_frame_at(fd, body + frame->compressed_bytes, size) || sl_frame_read(segments, fd, frame, at))
      return finding;
  } else if (frame->compressed_bytes > NEWER_BYTES_MAX) {
    return DAMAGED;
  } else if (sl_frame_read(segments, fd, frame, at)) {
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
    if (sl_file_read(fd, window, bytes, at))
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
         sl_file_read(fd, header, sizeof(*header), at + sizeof(*frame)) == 0 && sl_segment_judge(header) == FOUND &&
         header->number == frame->number;
}

/* Looks at the frames that the file has got since the last time. */
static int index_frames(struct sl_segments *segments, uint32_t index, struct sl_error *error) {
  struct sl_sealed_file *file = &segments->sealed[index];
  const uint64_t size = sl_file_size(file->fd);
  uint64_t at = file->end, vain = 0;
  while (at < size) {
    struct sl_frame_header frame;
    struct sl_segment_header header;
    file->end = at;
    if (size - at < sizeof(frame) + sizeof(header) || sl_file_read(file->fd, &frame, sizeof(frame), at))
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
        return sl_segments_take(segments, &header,
                                (struct sl_segment_entry){.frame_at = at, .file = index, .disk_bytes = size - at});
      sl_segments_damaged(segments, next - at);
      at = next;
      continue;
    }
    int r = sl_segments_take(segments, &header,
                             (struct sl_segment_entry){.frame_at = at, .file = index, .disk_bytes = bytes});
    if (r < 0)
      return sl_no_memory(error);
    at += bytes;
  }
  file->end = at;
  return 0;
}

/* sealed.slogz, or sealed-NNNNNNNN.slogz. */
static bool is_sealed_name(const char *name) {
  const size_t prefix = strlen(SL_SEALED_PREFIX);
  return strcmp(name, SL_SEALED_NAME) == 0 ||
         (strncmp(name, SL_SEALED_PREFIX, prefix) == 0 && strspn(name + prefix, "0123456789abcdef") == 8 &&
          strcmp(name + prefix + 8, SL_SEALED_SUFFIX) == 0);
}

int sl_sealed_open(struct sl_segments *segments, const char *name, struct sl_error *error) {
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
  struct sl_sealed_file opened = {.fd = sl_segment_file_open(segments, name), .seen = true};
  if (opened.fd < 0)
    return sl_segment_file_refuse(segments, name, error);
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

int sl_sealed_index(struct sl_segments *segments, DIR *listing, struct sl_error *error) {
  int r = 0;
  for (uint32_t i = 0; i < segments->sealed_count; i++)
    segments->sealed[i].seen = false;
  rewinddir(listing);
  for (struct dirent *file; r == 0 && (file = readdir(listing));)
    if (is_sealed_name(file->d_name))
      r = sl_sealed_open(segments, file->d_name, error);
  for (uint32_t i = 0; i < segments->sealed_count && r == 0; i++) {
    if (segments->sealed[i].fd < 0)
      continue;
    r = index_frames(segments, i, error);
    if (r == 0)
      r = sl_segment_file_refuse(segments, segments->sealed[i].name, error);
    if (r == 0 && !segments->sealed[i].seen)
      sealed_forget(segments, i);
  }
  return r;
}

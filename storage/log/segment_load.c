/*
 * A segment's records, from its raw file or from its frame in a sealed file: whichever is there by now, since it may be
 * sealed after it was found.
 */
#include "segment_load.h"

#include "decompressor.h"
#include "plugin/format/events.h"
#include "sealed_frames.h"
#include "segment_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd_errors.h>

/* The first `from` bytes are there already. */
static int load_raw(const struct sl_segments *segments, uint32_t number, struct sl_records *records, size_t from) {
  char name[32];
  snprintf(name, sizeof(name), "%08x" SL_SEGMENT_SUFFIX, number);
  int fd = sl_segment_file_open(segments, name);
  if (fd < 0)
    return fd;
  int r = -EBADMSG;
  struct sl_segment_header header;
  struct stat status = {0};
  uint64_t bytes = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
  if (bytes > SL_SEGMENT_BYTES)
    bytes = SL_SEGMENT_BYTES;
  if (sl_file_read(fd, &header, sizeof(header), 0) || sl_segment_judge(&header) != FOUND || header.number != number)
    goto finish;
  bytes -= sizeof(header);
  if (bytes < from) /* cut to what is in it */
    bytes = from;
  char *data = sl_file_room(records->data, &records->size, bytes + 8);
  r = data ? sl_file_read(fd, data + from, bytes - from, sizeof(header) + from) : -ENOMEM;
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
  int r = sl_file_read(fd, &frame, sizeof(frame), entry->frame_at);
  /* The file may have changed since it was indexed, so the lengths are looked at again. */
  if (r < 0 || frame.magic != SL_FRAME_MAGIC || frame.raw_bytes > RECORDS_MAX ||
      frame.compressed_bytes > COMPRESSED_MAX)
    return r < 0 ? r : -EBADMSG;
  char *data = sl_file_room(records->data, &records->size, frame.raw_bytes + 8);
  if (!data)
    return -ENOMEM;
  records->data = data;
  if (!sl_frame_read(segments, fd, &frame, entry->frame_at))
    return -EBADMSG;
  if (!segments->decompressor && !(segments->decompressor = sl_decompressor_take())) {
    sl_segment_file_unreadable(ENOMEM);
    return -ENOMEM;
  }
  size_t bytes =
      ZSTD_decompressDCtx(segments->decompressor, data, frame.raw_bytes, segments->compressed, frame.compressed_bytes);
  if (ZSTD_getErrorCode(bytes) == ZSTD_error_memory_allocation)
    sl_segment_file_unreadable(ENOMEM);
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
  DIR *listing = sl_segments_list(segments);
  if (!listing)
    return -errno;
  for (uint32_t i = 0; i < segments->sealed_count; i++) {
    const uint32_t count = later.sealed_count;
    if (segments->sealed[i].fd >= 0 && sl_sealed_open(&later, segments->sealed[i].name, error) == 0 &&
        later.sealed_count > count)
      later.sealed[count].end = segments->sealed[i].end;
  }
  int r = sl_sealed_index(&later, listing, error);
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
  sl_segment_file_unreadable(0);
  records->bytes = 0;
  if (entry->frame_at != SL_NOT_THERE)
    r = load_frame(segments, entry, records);
  if (r < 0 && entry->raw)
    r = load_raw(segments, entry->number, records, 0);
  if (r == -ENOENT && entry->raw)
    r = load_new_frame(segments, entry->number, records, error);
  if (r == 0) {
    sl_segment_file_unreadable(0); /* the other copy could be */
    return 0;
  }
  records->bytes = 0;
  snprintf(name, sizeof(name), "%08x" SL_SEGMENT_SUFFIX, entry->number);
  int failed = sl_segment_file_refuse(
      segments, entry->frame_at == SL_NOT_THERE ? name : segments->sealed[entry->file].name, error);
  return failed < 0 ? failed : r;
}

int sl_segments_load_more(struct sl_segments *segments, const struct sl_segment_entry *entry,
                          struct sl_records *records, size_t from) {
  /* The raw file first: a frame is of no use here until it is whole, and has nothing more than the file had. */
  int r = entry->raw ? load_raw(segments, entry->number, records, from) : -ENOENT;
  return r == -ENOENT && entry->frame_at != SL_NOT_THERE ? load_frame(segments, entry, records) : r;
}

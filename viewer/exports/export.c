/* Opens and closes an export's files, and writes what several formats share. */
#include "exports/export.h"
#include "output/terminal.h"
#include "viewer_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

void sl_export_progress(struct sl_export *export) {
  static const uint64_t between = 1 << 15; /* rows between two looks at the terminal */
  if (++export->rows_done % between == 0)
    sl_progress_show_count("exporting", export->rows_done, export->rows);
}

static ssize_t write_gzip(void *cookie, const char *data, size_t size) {
  return gzwrite(cookie, data, (unsigned)size);
}

static int close_gzip(void *cookie) {
  if (gzclose(cookie) == Z_OK)
    return 0;
  errno = EIO;
  return EOF;
}

/* A stream that gzip compresses on the way; fclose tells like any write whether it worked. NULL with errno. */
static FILE *gzip_stream(const struct sl_part_file *part) {
  int file = fcntl(part->file, F_DUPFD_CLOEXEC, 0);
  gzFile gzip = file < 0 ? NULL : gzdopen(file, "wb6");
  if (!gzip) {
    if (file >= 0)
      close(file);
    errno = file < 0 ? errno : ENOMEM;
    return NULL;
  }
  FILE *stream = fopencookie(gzip, "w", (cookie_io_functions_t){.write = write_gzip, .close = close_gzip});
  if (!stream)
    gzclose(gzip);
  else
    setvbuf(stream, NULL, _IOFBF, 1 << 16);
  return stream;
}

int sl_export_begin(const char *path, bool compressed, struct sl_export_file *out, struct sl_error *error) {
  *out = (struct sl_export_file){SL_PART_FILE_NONE, NULL};
  int r = sl_part_file_make(path, &out->part, error);
  if (r < 0)
    return r;
  out->stream = compressed ? gzip_stream(&out->part) : sl_part_file_stream(&out->part);
  if (out->stream)
    return 0;
  r = sl_error_set(error, errno ? -errno : -ENOMEM, "%s can't be written: %s", path, strerror(errno ? errno : ENOMEM));
  out->part = sl_part_file_close(out->part);
  return r;
}

int sl_export_begin_any(const char *path, struct sl_export_file *out, struct sl_error *error) {
  struct stat status;
  if (stat(path, &status) < 0 || S_ISREG(status.st_mode))
    return sl_export_begin(path, false, out, error);
  *out = (struct sl_export_file){SL_PART_FILE_NONE, fopen(path, "we")};
  out->part.output = out->stream ? strdup(path) : NULL;
  if (out->part.output)
    return 0;
  int r = sl_error_set(error, errno ? -errno : -ENOMEM, "%s can't be written: %s", path, strerror(errno));
  if (out->stream)
    fclose(out->stream);
  out->stream = NULL;
  return r;
}

int sl_export_end(struct sl_export_file *file, int r, struct sl_error *error) {
  if (file->stream) {
    errno = 0;
    bool failed = fflush(file->stream) != 0;
    failed |= ferror(file->stream) != 0;
    failed |= fclose(file->stream) != 0;
    if (r == 0 && failed)
      r = sl_error_set(error, -EIO, "%s can't be written: %s", file->part.output,
                       errno ? strerror(errno) : "its disk may be full");
  }
  if (r == 0 && file->part.file >= 0)
    r = sl_part_file_keep(&file->part, error);
  file->part = sl_part_file_close(file->part);
  file->stream = NULL;
  return r;
}

bool sl_nesting_fits(struct sl_nesting *nesting, int64_t start_ns, int64_t end_ns) {
  while (nesting->depth > 0 && nesting->ends[nesting->depth - 1] <= start_ns)
    nesting->depth--;
  if (nesting->depth > 0 && end_ns > nesting->ends[nesting->depth - 1])
    return false;
  if (nesting->depth == (int)(sizeof(nesting->ends) / sizeof(nesting->ends[0])))
    return false;
  nesting->ends[nesting->depth++] = end_ns;
  return true;
}

int sl_export_each_rank(struct sl_export *export, sl_export_rank *write, struct sl_error *error) {
  struct sl_statement *ranks = NULL;
  if (mkdir(export->output, 0777) != 0 && errno != EEXIST)
    return sl_error_set(error, -errno, "%s can't be made: %s", export->output, strerror(errno));
  int r = sl_db_ask(export->db, sl_sql_export_ranks, SL_WITH(SL_WORD(":ranks", export->ranks)), &ranks, error);
  while (r == 0 && (r = sl_statement_step(ranks, error)) > 0)
    r = write(export, ranks, error);
  ranks = sl_statement_close(ranks);
  return r;
}

/* Puts metrics into a file, or serves them on a socket. */
#include "serve/metrics_sink.h"

#include "storage/part_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int sl_metrics_sink_open(struct sl_metrics_sink *out, const char *target, bool once, struct sl_error *error) {
  char where[128];
  *out = SL_METRICS_SINK_NONE;
  if (!*target)
    return sl_error_set(error, -EINVAL, "name a file or an address, such as :9401");
  if (!sl_http_is_address(target)) {
    if (strcmp(target, "-") == 0 && !once)
      return sl_error_set(error, -EINVAL, "- needs --once; name a file or an address, such as :9401");
    out->file = target;
    snprintf(out->where, sizeof out->where, "%s", target);
    return 0;
  }
  if (once)
    return sl_error_set(error, -EINVAL, "an address can't be scraped when --once ends the command; name a file");
  int r = sl_http_listen(target, &out->socket, where, error);
  if (r == 0)
    snprintf(out->where, sizeof out->where, "http://%s/metrics", where);
  return r;
}

struct sl_metrics_sink sl_metrics_sink_close(struct sl_metrics_sink sink) {
  if (sink.socket >= 0)
    close(sink.socket);
  return SL_METRICS_SINK_NONE;
}

static int file_write(const char *path, const struct sl_live_run *run, struct sl_error *error) {
  struct sl_part_file part = SL_PART_FILE_NONE;
  int r = sl_part_file_make(path, &part, error);
  FILE *file = r == 0 ? sl_part_file_stream(&part) : NULL;
  if (r == 0 && !file)
    r = sl_error_set(error, -errno, "%s: %s", path, strerror(errno));
  if (r == 0)
    r = sl_or_no_memory(sl_metrics_write(file, run), error);
  errno = 0;
  const bool failed = file && ferror(file);
  if (((file && fclose(file) != 0) || failed) && r == 0)
    r = sl_error_set(error, errno ? -errno : -EIO, "%s: %s", path, strerror(errno ? errno : EIO));
  if (r == 0)
    r = sl_part_file_keep(&part, error);
  part = sl_part_file_close(part);
  return r;
}

int sl_metrics_sink_tell(struct sl_metrics_sink *sink, const struct sl_live_run *run, int read,
                         const struct sl_error *reading, struct sl_error *error) {
  sink->run = run;
  sink->failed = read < 0 && read != -ENOENT && read != -ENODATA ? read : 0;
  sink->error = *reading;
  if (!sink->file || sink->failed)
    return 0;
  return strcmp(sink->file, "-") == 0 ? sl_or_no_memory(sl_metrics_write(stdout, run), error)
                                      : file_write(sink->file, run, error);
}

static int page_write(void *context, FILE *file, struct sl_error *error) {
  const struct sl_metrics_sink *sink = context;
  if (!sink->failed)
    return sl_or_no_memory(sl_metrics_write(file, sink->run), error);
  *error = sink->error;
  return sink->failed;
}

void sl_metrics_sink_serve(const struct sl_metrics_sink *sink, uint64_t until_ns, const sigset_t *while_waiting) {
  const struct sl_http_page page = {.path = "/metrics",
                                    .type = "text/plain; version=0.0.4; charset=utf-8",
                                    .write = page_write,
                                    .context = (void *)sink};
  sl_http_serve(sink->socket, &page, until_ns, while_waiting);
}

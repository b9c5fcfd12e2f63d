/* Where `watch --metrics` puts its figures: a file that is replaced after each look, or a socket that is scraped. */
#ifndef SHARDLEDGER_METRICS_SINK_H
#define SHARDLEDGER_METRICS_SINK_H

#include "serve/http.h"
#include "serve/metrics.h"

struct sl_metrics_sink {
  const char *file;              /* the caller's; "-": stdout; NULL: none */
  int socket;                    /* -1: none */
  char where[160];               /* for the user; "" where there are none */
  bool complained;               /* the caller's, of the last time */
  const struct sl_live_run *run; /* what is shown, as it was read last */
  int failed;                    /* of that reading: a negative errno in place of figures … */
  struct sl_error error;         /* … and its sentence */
};
#define SL_METRICS_SINK_NONE ((struct sl_metrics_sink){.socket = -1})

/*
 * target: an address as sl_http_is_address has it, else a file. once: the figures are told one time, so there is no use
 * for an address. 0 or a negative errno with the sentence in error, and *out is none.
 */
int sl_metrics_sink_open(struct sl_metrics_sink *out, const char *target, bool once, struct sl_error *error);
struct sl_metrics_sink sl_metrics_sink_close(struct sl_metrics_sink sink); /* returns none */

static inline bool sl_metrics_sink_serves(const struct sl_metrics_sink *sink) {
  return sink->socket >= 0;
}
static inline bool sl_metrics_sink_is_open(const struct sl_metrics_sink *sink) {
  return sink->file || sl_metrics_sink_serves(sink);
}

/*
 * The run was read, with this result and sentence; it stays the caller's and must outlive the sink. One that has no
 * logs yet has no ranks. What can't be read has no figures: a file grows old, and a scrape gets 503.
 */
int sl_metrics_sink_tell(struct sl_metrics_sink *sink, const struct sl_live_run *run, int read,
                         const struct sl_error *reading, struct sl_error *error);

/* Answers scrapes as sl_http_serve does; for a sink that serves. */
void sl_metrics_sink_serve(const struct sl_metrics_sink *sink, uint64_t until_ns, const sigset_t *while_waiting);

#endif

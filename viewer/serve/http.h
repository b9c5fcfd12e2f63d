/*
 * Just enough of HTTP to be scraped: one page, one request at a time, each small and answered within seconds, whoever
 * asks. No threads: the caller lends its waiting time.
 */
#ifndef SHARDLEDGER_HTTP_H
#define SHARDLEDGER_HTTP_H

#include "storage/error.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_http_page {
  const char *path, *type; /* "/metrics", its Content-Type */
  /* Writes the body. 0, or a negative errno with the sentence in error: 503. */
  int (*write)(void *context, FILE *file, struct sl_error *error);
  void *context;
};

/* "HOST:PORT", "[::1]:PORT" or ":PORT", which is 127.0.0.1. Says nothing of whether it can be listened on. */
bool sl_http_is_address(const char *text);

/*
 * Listens there. *out is the socket, the caller's to close; where is what it listens on, as it stands in a URL (for
 * port 0 the one that the system chose). 0 or a negative errno with the sentence in error.
 */
int sl_http_listen(const char *address, int *out, char where[128], struct sl_error *error);

/*
 * Answers requests until the clock (CLOCK_MONOTONIC) says until_ns, or a signal comes that while_waiting lets through.
 * A request that is being answered then is finished, at most REQUEST_NS later.
 */
void sl_http_serve(int socket, const struct sl_http_page *page, uint64_t until_ns, const sigset_t *while_waiting);

#endif

/* What `watch` shows of a run, as text, CSV or JSON. */
#ifndef SHARDLEDGER_WATCH_VIEW_H
#define SHARDLEDGER_WATCH_VIEW_H

#include "output/table.h"
#include "storage/live/live_run.h"

struct sl_watch_view {
  const char *ranks; /* of these the one with the highest peak is shown in detail; NULL: of all */
  uint64_t now_ns;   /* CLOCK_REALTIME */
  size_t limit;      /* so many ranks fit, in text; 0: all */
};

/* A rank whose log has not grown for this long is called silent: a line comes every second. */
#define SL_WATCH_SILENT_NS 5000000000u

/* Of more ranks than this `watch --once` reads the figures alone, but for the one that is shown in detail. */
enum { SL_WATCH_WHOLE = 16 };

/* The process whose memory is shown in detail; run->count: there is none of these ranks (yet). */
size_t sl_watch_detail(const struct sl_live_run *run, const struct sl_watch_view *view);

/* Prints one view. -ENOENT: there is none of these ranks (yet), which was not said. */
int sl_watch_print(struct sl_output *out, const struct sl_live_run *run, const struct sl_watch_view *view);

/* All ranks of the job are there, and have ended in order. */
bool sl_watch_ended(const struct sl_live_run *run);

#endif

/* The names and facts of one log: its string and info events. */
#ifndef SHARDLEDGER_LOG_NAMES_H
#define SHARDLEDGER_LOG_NAMES_H

#include "plugin/format/events.h"

#include <stddef.h>
#include <stdint.h>

struct sl_text_chunk;
struct sl_log_fact;

/* Zero-initialise; free with sl_log_names_free. */
struct sl_log_names {
  const char **strings; /* by id */
  uint32_t string_count;
  struct sl_text_chunk *texts; /* which they are in */
  struct sl_log_fact *facts;   /* by key */
};

/* Both 0 or -ENOMEM. Texts are cleaned; ids that no writer would use are ignored; the last one of a key counts. */
int sl_log_names_string(struct sl_log_names *names, const struct sl_event_string *event);
int sl_log_names_info(struct sl_log_names *names, const struct sl_event_info *event);

/* NULL when there is none. Valid until the names are freed. */
static inline const char *sl_log_names_text(const struct sl_log_names *names, uint32_t id) {
  return id < names->string_count ? names->strings[id] : NULL;
}
const char *sl_log_names_fact(const struct sl_log_names *names, const char *key);

void sl_log_names_free(struct sl_log_names *names);

#endif

/*
 * A definition comes before what refers to it: in time, since it is recorded first, and after a kill, since an id is
 * published only once it is in the log.
 */
#include "log_definitions.h"

#include "event_log.h"
#include "log_state.h"
#include "pending_definitions.h"
#include "string_table.h"
#include "thread_state.h"

#include <errno.h>
#include <string.h>

struct sl_segment *sl_segment_for_definitions(void) {
  struct sl_segment *segment = sl_pool_take();
  return segment ? segment : sl_pool_stopgap(true);
}

void sl_define_locked(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  struct chain *chain = &sl_the_log.definitions;
  if (sl_the_log.state < OPEN && !sl_pending_add(type, fields, bytes, tail, tail_bytes))
    sl_chain_lose(chain, type);
  if (sl_the_log.state != OPEN)
    return;
  size_t need = HEADER_BYTES + bytes + ((tail_bytes + 7) & ~(size_t)7);
  uint64_t now = sl_clock_ns(CLOCK_REALTIME);
  if (sl_chain_room(chain) < (intptr_t)(need + PRELUDE_BYTES)) {
    struct sl_segment *segment = need <= WORDS_MAX * 8 ? sl_segment_for_definitions() : NULL;
    if (!segment) {
      sl_chain_lose(chain, type);
      return;
    }
    sl_chain_continue(chain, segment, now);
  }
  sl_chain_put_timed(chain, now, type, fields, bytes, tail, tail_bytes);
}

uint32_t sl_name_locked(const char *text, size_t length) {
  uint32_t id = sl_names_find(text, length);
  if (id)
    return id;
  id = sl_names_next();
  if (!id)
    return 0;
  /* Defined before it is published: no event can refer to an id that a kill could keep from the log. */
  const struct sl_event_string string = {id, (uint32_t)length};
  sl_define_locked(SL_EVENT_string, &string, sizeof(string), text, length);
  id = sl_names_add(text, length);
  if (!id) /* memory is short: what it names is without a name, and that is told */
    sl_chain_lose(&sl_the_log.definitions, SL_EVENT_string);
  return id;
}

static bool define_begin(struct sl_undisturbed *before) {
  if (sl_is_over())
    return false;
  sl_log_init();
  return sl_log_lock(before);
}

void sl_log_define(enum sl_event_type type, const void *fields, size_t bytes, const void *tail, size_t tail_bytes) {
  struct sl_undisturbed before;
  const int host_errno = errno;
  if (!define_begin(&before))
    return;
  sl_define_locked(type, fields, bytes, tail, tail_bytes);
  sl_log_unlock(&before);
  errno = host_errno;
}

uint32_t sl_log_name_n(const char *text, size_t length) {
  if (!text || length == 0)
    return 0;
  length = sl_name_clip(text, length);
  uint32_t id = sl_names_find(text, length);
  struct sl_undisturbed before;
  if (LIKELY(id))
    return id;
  const int host_errno = errno;
  if (!define_begin(&before))
    return 0;
  length = sl_name_clean(text, length, sl_the_log.clean);
  id = sl_name_locked(sl_the_log.clean, length);
  sl_log_unlock(&before);
  errno = host_errno;
  return id;
}

uint32_t sl_log_name(const char *text) {
  return text ? sl_log_name_n(text, strnlen(text, SL_NAME_MAX + 1)) : 0;
}

void sl_info_locked(const char *key, const char *value) {
  if (!value || !*value)
    return;
  size_t length = sl_name_clean(value, sl_name_clip(value, strnlen(value, SL_NAME_MAX + 1)), sl_the_log.clean);
  const struct sl_event_info info = {sl_name_locked(key, strlen(key)), sl_name_locked(sl_the_log.clean, length)};
  sl_define_locked(SL_EVENT_info, &info, sizeof(info), NULL, 0);
}

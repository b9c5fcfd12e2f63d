/* The one part of the public API that the sources use too: saying what state they are in. */
#include "plugin/log/event_log.h"
#include "plugin/shardledger.h"

#include <stddef.h>

void sl_source_state(const char *source, const char *state, const char *reason) {
  const struct sl_event_source_state event = {
      .source = sl_log_name(source), .state = sl_log_name(state), .reason = sl_log_name(reason)};
  sl_log_define(SL_EVENT_source_state, &event, sizeof(event), NULL, 0);
}

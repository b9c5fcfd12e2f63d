/* One log a process. What goes wrong with it ends here: recording is off, the user is told once, the host goes on. */
#include "log_state.h"

#include "own_memory.h"
#include "plugin/process/config.h"

#include <errno.h>
#include <string.h>

unsigned sl_log_off;
pthread_key_t sl_thread_key = (pthread_key_t)-1;
struct log_state sl_the_log = {.lock = PTHREAD_MUTEX_INITIALIZER, .next_ordinal = 1};

bool sl_log_lock(struct sl_undisturbed *before) {
  sl_undisturbed_begin(before);
  if (!sl_own_process()) {
    sl_off_set(OFF_FORKED);
    sl_undisturbed_end(before);
    return false;
  }
  pthread_mutex_lock(&sl_the_log.lock);
  return true;
}

void sl_log_unlock(const struct sl_undisturbed *before) {
  pthread_mutex_unlock(&sl_the_log.lock);
  sl_undisturbed_end(before);
}

void sl_log_fail(const char *what, int error) {
  unsigned before = sl_off_set(OFF_FAILED);
  if (before & OFF_FOR_GOOD)
    return;
  if (error == -E2BIG)
    sl_say("%s: SHARDLEDGER_MAX_BYTES is too small, it takes %u KiB at least; recording is off, training goes on", what,
           SL_POOL_BYTES_MIN >> 10);
  else if (error == -ENOSPC || error == -EDQUOT)
    sl_say("%s: %s; recording is off, training goes on. Free some space or set SHARDLEDGER_DIR to another file system",
           what, strerror(-error));
  else
    sl_say("%s: %s; recording is off, training goes on. Set SHARDLEDGER_DIR to a directory of yours on a local disk",
           what, error == -EPERM ? "its directory is another user's, or everybody may write to it" : strerror(-error));
}

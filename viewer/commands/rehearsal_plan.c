/* Which ranks of how many are rehearsed, and how far. */
#include "commands/rehearsal_plan.h"
#include "output/terminal.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One rank, a number or a word, that ends at `end`. -1: neither. */
static int64_t read_rank(const char *text, size_t length, int64_t world_size) {
  static const struct {
    const char *word;
    bool is_last;
  } words[] = {{"first", false}, {"largest", false}, {"last", true}};
  for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
    if (strlen(words[i].word) == length && strncmp(text, words[i].word, length) == 0)
      return words[i].is_last ? world_size - 1 : 0;
  int64_t number = 0;
  if (length == 0 || length > 9)
    return -1;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9')
      return -1;
    number = 10 * number + (text[i] - '0');
  }
  return number < world_size ? number : -1;
}

static int add_rank(struct sl_rehearsal_plan *plan, int64_t rank) {
  for (int i = 0; i < plan->count; i++)
    if (plan->ranks[i] == rank)
      return 0;
  int64_t *added = SL_LIST_ADD(plan->ranks, plan->count);
  if (!added)
    return -ENOMEM;
  *added = rank;
  return 0;
}

/* "0,last", "0-3". */
static int read_ranks(struct sl_rehearsal_plan *plan, const char *text) {
  int r = 0;
  for (const char *part = text; r == 0;) {
    const size_t length = strcspn(part, ",");
    const char *dash = memchr(part, '-', length);
    const size_t first_length = dash ? (size_t)(dash - part) : length;
    const int64_t first = read_rank(part, first_length, plan->world_size);
    const int64_t last = dash ? read_rank(dash + 1, length - first_length - 1, plan->world_size) : first;
    if (first < 0 || last < first)
      return -EINVAL;
    for (int64_t rank = first; rank <= last && r == 0; rank++)
      r = add_rank(plan, rank);
    if (!part[length])
      break;
    part += length + 1;
  }
  return r;
}

int sl_rehearsal_plan_make(struct sl_rehearsal_plan *plan, const char *ranks) {
  struct timespec now;
  struct tm utc;
  char stamp[32] = "";
  if (plan->world_size < 1 || plan->world_size > SL_REHEARSAL_WORLD_MAX) {
    sl_complain("rehearse: --world-size says how many ranks the job is to have, 1 to %d; for example --world-size 64",
                SL_REHEARSAL_WORLD_MAX);
    return -EINVAL;
  }
  if (plan->steps < 1) {
    sl_complain("rehearse: --steps takes 1 or more: a rehearsal is ended where the next step would begin");
    return -EINVAL;
  }
  if (plan->local_size == 0)
    plan->local_size = plan->world_size < 8 ? plan->world_size : 8;
  if (plan->local_size > plan->world_size) {
    sl_complain("rehearse: --gpus-per-node is %lld, and there are %lld ranks", (long long)plan->local_size,
                (long long)plan->world_size);
    return -EINVAL;
  }
  const int r = read_ranks(plan, ranks);
  if (r < 0) {
    if (r == -EINVAL)
      sl_complain("rehearse: --rank takes ranks from 0 to %lld, as 5, 0,last or 0-3, not '%s'",
                  (long long)(plan->world_size - 1), ranks);
    else
      sl_complain("rehearse: no memory for so many ranks");
    return r;
  }
  clock_gettime(CLOCK_REALTIME, &now);
  if (gmtime_r(&now.tv_sec, &utc))
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%S", &utc);
  snprintf(plan->id, sizeof(plan->id), "rehearsal-%s-%d", stamp, (int)getpid());
  return 0;
}

void sl_rehearsal_plan_free(struct sl_rehearsal_plan *plan) {
  free(plan->ranks);
  plan->ranks = NULL;
  plan->count = 0;
}

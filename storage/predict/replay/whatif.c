/* Plays a rank's tape unchanged, then changed, and compares. */
#include "whatif.h"

#include "storage/allocator/allocator_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACTIVE = 2, RESERVED = 3 }; /* of SL_QUANTITIES */

static int refuse(struct sl_whatif *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int refuse(struct sl_whatif *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(out->reason, sizeof out->reason, format, arguments);
  va_end(arguments);
  out->standing = SL_STANDING_refused;
  return 0;
}

void sl_alloc_conf_unknown(const char *text, char *out, size_t size) {
  static const char *const known[] = {
      "expandable_segments", "max_split_size_mb", "large_segment_size_mb", "roundup_power2_divisions",
      "max_non_split_rounding_mb", "garbage_collection_threshold", "per_process_memory_fraction",
      /* and those that change no size */
      "backend", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "pinned_num_register_threads",
      "pinned_use_background_threads", "pinned_reserve_segment_size_mb", "graph_capture_record_stream_reuse"};
  size_t length = 0;
  *out = '\0';
  for (const char *p = text; *p;) {
    const size_t key = strcspn(p, ":,");
    bool is_known = p[key] == ':';
    if (is_known) {
      is_known = false;
      for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        is_known |= strlen(known[i]) == key && strncmp(known[i], p, key) == 0;
    }
    if (!is_known && length + 1 < size)
      length += (size_t)snprintf(out + length, size - length, "%s%.*s", length ? ", " : "", (int)key, p);
    p += key;
    if (*p == ':')
      p += p[1] == '[' ? strcspn(p, "]") : 0;
    p += strcspn(p, ",");
    while (*p == ',' || *p == ' ')
      p++;
  }
}

/* ---- what can be asked ---- */

/* The first segments that were given back since there was no room; SIZE_MAX: none. */
static size_t first_return(const struct sl_tape *tape, const struct sl_replay *before) {
  for (size_t i = 0; i < tape->segment_count; i++)
    if (before->sweeps[i] == SL_SWEEP_within_request || tape->segments[i].action == SL_TAPE_refused)
      return i;
  return SIZE_MAX;
}

static const struct sl_tape_period *period_of(const struct sl_tape *tape, uint64_t event) {
  const struct sl_tape_period *found = &tape->periods[0];
  for (size_t i = 0; i < tape->period_count && tape->periods[i].first_event <= event; i++)
    found = &tape->periods[i];
  return found;
}

/* "step 3", "setup". */
static const char *period_words(const struct sl_tape_period *period, char buffer[static 32]) {
  if (strcmp(period->kind, "step") == 0)
    snprintf(buffer, 32, "step %" PRId64, period->step);
  else
    snprintf(buffer, 32, "%s", period->kind);
  return buffer;
}

/* Requests that were refused, or served when others had been given back, tell how much there was room for. */
static bool is_limit_known(const struct sl_replay *before) {
  return before->refused_bytes && before->refused_bytes > before->highest[RESERVED].bytes;
}

static bool has_room_limits(const struct sl_whatif_change *change) {
  return change->device_bytes || change->limit_bytes || change->recorded_limit_bytes;
}

static int check_unchanged(const struct sl_tape *tape, struct sl_whatif *out) {
  char where[32];
  size_t first = 0;
  const size_t off = sl_replay_differences(tape, &out->before, &first);
  if (off)
    return refuse(
        out,
        "played unchanged, %zu of %s%zu periods are not as recorded, the first %s: the record does not tell all "
        "that the allocator did",
        off, out->before.played < tape->period_count ? "the first " : "", out->before.played,
        period_words(&tape->periods[first], where));
  if (out->before.unmatched)
    return refuse(out, "of %" PRIu64 " of the allocator's events the record does not tell what they are of",
                  out->before.unmatched);
  return 0;
}

int sl_whatif_unchanged(const struct sl_tape *tape, struct sl_replay *out, char *reason, size_t size) {
  const struct sl_replay_options options = {.config = NULL};
  struct sl_whatif answer = {.standing = SL_STANDING_exact};
  *reason = '\0';
  int r = sl_replay_run(tape, &options, out);
  if (r < 0)
    return r;
  answer.before = *out;
  r = check_unchanged(tape, &answer);
  if (answer.standing == SL_STANDING_refused)
    snprintf(reason, size, "%s", answer.reason);
  return r;
}

static int check_change(const struct sl_tape *tape, bool is_other_tape, const struct sl_whatif_change *change,
                        struct sl_whatif *out) {
  struct sl_allocator_config config, recorded;
  char where[32];
  sl_allocator_config_parse(change->alloc_conf ? change->alloc_conf : tape->config, &config);
  sl_allocator_config_parse(tape->config, &recorded);
  if (tape->restored && (change->alloc_conf || is_other_tape))
    return refuse(out,
                  "recording began when the allocator held memory already, which it had placed under its own settings");
  const bool has_limit =
      change->limit_bytes || change->recorded_limit_bytes || (config.memory_fraction > 0 && tape->device_bytes);
  if (config.collection_threshold > 0 && !has_limit)
    return refuse(out, "garbage_collection_threshold acts in a process with a limit (set_per_process_memory_fraction), "
                       "which is not recorded: --memory-limit tells it");
  const size_t returned = first_return(tape, &out->before);
  const bool is_told =
      change->room_without_end || has_room_limits(change) || config.memory_fraction > 0 || is_limit_known(&out->before);
  if (returned != SIZE_MAX && (!is_told || (recorded.collection_threshold > 0 && !change->recorded_limit_bytes)))
    return refuse(out,
                  "in %s the allocator gave cached segments back within a request: --recorded-limit tells the limit of "
                  "the recorded process (set_per_process_memory_fraction)",
                  period_words(period_of(tape, tape->segments[returned].event), where));
  if (change->device_bytes && !tape->outside_bytes)
    return refuse(out, "no sample of the device tells how much of it is not PyTorch's: --memory-limit gives PyTorch's "
                       "share alone");
  if (change->device_bytes && change->device_bytes <= tape->outside_bytes)
    return refuse(out, "%" PRIu64 " bytes of the device are not PyTorch's, which is all of it", tape->outside_bytes);
  return 0;
}

/* ---- the answer ---- */

static void range_add(struct sl_whatif_range *range, uint64_t bytes, bool is_first) {
  if (is_first || bytes < range->low)
    range->low = bytes;
  if (is_first || bytes > range->high)
    range->high = bytes;
}

static void ends_add(struct sl_whatif *out, const struct sl_replay *replay, bool is_first) {
  const enum sl_whatif_end end = !replay->stop.is_one      ? SL_END_all
                                 : replay->stop.was_served ? SL_END_served
                                                           : SL_END_refused;
  if (is_first)
    out->end = end;
  else if (out->end != end)
    out->ends_surely = false;
  if (end == SL_END_refused)
    out->end = end;
  out->out_of_memory += end == SL_END_refused;
}

static void answer_add(const struct sl_tape *tape, struct sl_whatif *out, const struct sl_replay *replay,
                       bool is_first) {
  const size_t reached = replay->stop.is_one ? replay->stop.period + 1 : tape->period_count;
  for (int i = 0; i < SL_QUANTITIES; i++) {
    range_add(&out->highest[i], replay->highest[i].bytes, is_first);
    for (size_t p = 0; p < reached; p++)
      range_add(&out->peaks[i][p], ((const uint64_t *)&replay->peaks[p])[i], p >= out->reached);
    if (replay->open_from[i] < out->open_from[i])
      out->open_from[i] = replay->open_from[i];
  }
  if (reached > out->reached)
    out->reached = reached;
  if (replay->retries > out->retries)
    out->retries = replay->retries;
  ends_add(out, replay, is_first);
  out->plays++;
}

/* Whether a play has told all there is: no address and no other stream had a say in it. */
static bool is_settled(const struct sl_whatif *out) {
  if (out->is_changed && out->before.waits)
    return false;
  for (int i = 0; i < SL_QUANTITIES; i++)
    if (out->is_changed && out->open_from[i] != SIZE_MAX)
      return false;
  return true;
}

/* What the record leaves open: where the driver puts segments, and when other streams are done with freed blocks. */
static int play_all(const struct sl_tape *tape, struct sl_replay_options *options, unsigned most_plays,
                    struct sl_whatif *out) {
  static const enum sl_replay_completions completions[] = {SL_COMPLETIONS_recorded, SL_COMPLETIONS_at_once,
                                                           SL_COMPLETIONS_late};
  const unsigned ways = out->is_changed && out->before.waits ? 3 : 1;
  for (unsigned i = 0; i < most_plays && (i == 0 || !is_settled(out)); i++) {
    const unsigned addresses = i / ways; /* the first ones each with every way, and more orders of the last kind */
    struct sl_replay replay;
    options->addresses =
        addresses < SL_ADDRESSES_shuffled ? (enum sl_replay_addresses)addresses : SL_ADDRESSES_shuffled;
    options->seed = i;
    options->completions = completions[i % ways];
    int r = sl_replay_run(tape, options, &replay);
    if (r < 0)
      return r;
    const bool is_first = !out->after.peaks;
    answer_add(tape, out, &replay, is_first);
    if (is_first)
      out->after = replay;
    else
      sl_replay_free(&replay);
  }
  return 0;
}

/* Of both ends, whether a figure can't lie elsewhere: a longer life never takes less, unless blocks are chosen for it.
 */
static bool is_between(const struct sl_whatif *out, int quantity) {
  return quantity == 0 || (quantity != RESERVED && out->splits_all);
}

enum sl_standing sl_whatif_standing(const struct sl_whatif *out, int quantity, size_t period) {
  if (out->standing == SL_STANDING_refused || !out->is_changed)
    return out->standing;
  const bool room_is_guessed = out->room_is_open || (out->room_bytes && (out->retries || out->end != SL_END_all));
  const bool is_open = period == SIZE_MAX ? out->open_from[quantity] != SIZE_MAX : period >= out->open_from[quantity];
  if (out->is_doubtful || room_is_guessed || out->before.waits || is_open)
    return SL_STANDING_estimate;
  if (!out->has_ends)
    return SL_STANDING_exact;
  if (!is_between(out, quantity))
    return SL_STANDING_estimate;
  const struct sl_whatif_range *range = period == SIZE_MAX ? &out->highest[quantity] : &out->peaks[quantity][period];
  return range->low == range->high ? SL_STANDING_exact : SL_STANDING_bound;
}

static void standing_set(struct sl_whatif *out, const char *doubt) {
  enum sl_standing standing = SL_STANDING_exact;
  for (int i = 0; i < SL_QUANTITIES; i++) {
    const enum sl_standing of = i == ACTIVE ? SL_STANDING_exact : sl_whatif_standing(out, i, SIZE_MAX);
    standing = of > standing ? of : standing;
  }
  out->standing = standing;
  if (standing != SL_STANDING_estimate)
    return;
  bool is_open = out->room_is_open || out->retries || out->end != SL_END_all || out->before.waits;
  for (int i = 0; i < SL_QUANTITIES; i++)
    is_open |= out->open_from[i] != SIZE_MAX;
  const char *why =
      out->is_doubtful && !is_open ? ""
      : !is_open
          ? "where blocks are put depends on how long within a module something lives, which is known at both ends only"
      : out->room_is_open
          ? "how much room there was is known from the refused requests alone; --memory-limit or --device-memory tells it"
      : out->room_bytes && (out->retries || out->end != SL_END_all)
          ? "what is not PyTorch's is taken at its most, which it may not have been when there was no room"
      : out->before.waits
          ? "it depends on when other streams are done with freed blocks, or on where the driver puts segments"
          : "it depends on where the driver puts segments";
  snprintf(out->reason, sizeof out->reason, "%s%s%s", doubt, *doubt && *why ? "; " : "", why);
}

/* Where a limit is told, the recorded run had it too: with it, it must come out as recorded. */
static int check_limit(const struct sl_tape *tape, const struct sl_replay_options *options, struct sl_whatif *out) {
  struct sl_replay replay;
  struct sl_replay_options same = *options;
  char where[32];
  size_t first = 0;
  same.config = NULL;
  same.capacity_bytes = 0;
  int r = sl_replay_run(tape, &same, &replay);
  if (r < 0)
    return r;
  const size_t off = sl_replay_differences(tape, &replay, &first);
  if (off || replay.stop.is_one)
    refuse(out,
           "with a limit of %" PRIu64
           " bytes the recorded run itself is not as recorded, from %s on: is that its limit?",
           options->limit_bytes, period_words(&tape->periods[replay.stop.is_one ? replay.stop.period : first], where));
  sl_replay_free(&replay);
  return 0;
}

/* Plays the tape, or the changed one, and of a bound its other end, too. */
static int play_ends(const struct sl_tape *tape, const struct sl_tape *changed, struct sl_replay_options *options,
                     unsigned plays, struct sl_whatif *out) {
  int r = play_all(changed ? changed : tape, options, plays, out);
  return r == 0 && out->has_ends ? play_all(changed->most, options, plays, out) : r;
}

int sl_whatif_ask(const struct sl_tape *tape, const struct sl_tape *changed, const struct sl_whatif_change *change,
                  struct sl_whatif *out) {
  const bool is_changed = changed || change->alloc_conf || change->room_without_end || has_room_limits(change);
  *out = (struct sl_whatif){.is_changed = is_changed,
                            .has_ends = changed && changed->most,
                            .is_doubtful = changed && *changed->doubt,
                            .open_from = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX}};
  struct sl_replay_options options = {.limit_bytes = change->recorded_limit_bytes};
  const unsigned plays = change->most_plays ? change->most_plays : SL_PLAYS;
  struct sl_allocator_config config;
  for (int i = 0; i < SL_QUANTITIES; i++)
    if (!(out->peaks[i] = calloc(tape->period_count, sizeof *out->peaks[i])))
      return -ENOMEM;
  int r = change->unchanged ? 0 : sl_replay_run(tape, &options, &out->before);
  if (change->unchanged) {
    out->before = *change->unchanged;
    out->before_is_others = true;
  } else if (r == 0) {
    r = check_unchanged(tape, out);
  }
  if (r == 0 && is_changed && out->standing != SL_STANDING_refused)
    r = check_change(tape, changed != NULL, change, out);
  if (r < 0 || out->standing == SL_STANDING_refused)
    return r;
  out->ends_surely = true;
  if (!is_changed)
    return play_all(tape, &options, plays, out);
  options.config = change->alloc_conf;
  options.sweeps = out->before.sweeps;
  sl_allocator_config_parse(change->alloc_conf ? change->alloc_conf : tape->config, &config);
  out->splits_all = config.expandable_segments;
  if (change->recorded_limit_bytes)
    r = check_limit(tape, &options, out);
  if (r < 0 || out->standing == SL_STANDING_refused)
    return r;
  if (!changed && !change->alloc_conf && !change->limit_bytes && !change->device_bytes && !change->room_without_end)
    out->is_changed = false; /* its own limit alone, with which it came out as recorded */
  if (change->limit_bytes) {
    options.limit_bytes = change->limit_bytes;
    options.limit_event = change->limit_event;
  } else if (config.memory_fraction > 0) {
    options.limit_bytes = (uint64_t)(config.memory_fraction * (double)tape->device_bytes);
  }
  if (change->device_bytes)
    out->room_bytes = options.capacity_bytes = change->device_bytes - tape->outside_bytes;
  if (!change->room_without_end && !options.limit_bytes && !options.capacity_bytes &&
      first_return(tape, &out->before) != SIZE_MAX) {
    out->room_is_open = true;
    options.limit_bytes = out->before.refused_bytes - 1;
    r = play_ends(tape, changed, &options, plays, out);
    options.limit_bytes = out->before.highest[RESERVED].bytes;
  }
  if (r == 0)
    r = play_ends(tape, changed, &options, plays, out);
  if (r == 0)
    standing_set(out, changed ? changed->doubt : "");
  return r;
}

void sl_whatif_free(struct sl_whatif *out) {
  for (int i = 0; i < SL_QUANTITIES; i++)
    free(out->peaks[i]);
  if (!out->before_is_others)
    sl_replay_free(&out->before);
  sl_replay_free(&out->after);
  *out = (struct sl_whatif){0};
}

/*
 *   period by period: its own events, or those of the one that it repeats and its own where it has some
 *     alloc, free, complete ─► the object ─► the chooser
 *     segments given back   ─► empty_cache, or part of a request: the chooser does those itself
 */
#include "replay.h"

#include "cycles.h"
#include "live_objects.h"
#include "segment_addresses.h"
#include "storage/allocator/chooser.h"
#include "storage/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct player {
  const struct sl_tape *tape;
  const struct sl_replay_options *options;
  struct sl_replay *out;
  struct sl_chooser *chooser;
  struct sl_allocator_config config;
  struct sl_segment_addresses *addresses;
  struct sl_live_objects *objects;
  struct sl_cycles *cycles;
  struct sl_live_object **late; /* to be completed where the period ends */
  size_t late_count;
  uint32_t *places;     /* the chooser's, of each of the tape's */
  uint64_t *categories; /* allocated bytes now */
  size_t period;
  bool is_limited; /* the limit holds already */
};

struct step { /* an event as it is played: of the period itself, of the one that it repeats, or of both */
  uint8_t kind;
  uint32_t own, repeated; /* UINT32_MAX: is not */
};

static bool is_unchanged(const struct player *p) {
  return !p->options->sweeps;
}

/* A limit that is drawn later than the first event, where an event or a period begins. */
static void limit_draw(struct player *p, uint64_t event) {
  if (p->is_limited || event < p->options->limit_event)
    return;
  sl_chooser_limit(p->chooser, p->options->limit_bytes);
  p->is_limited = true;
}

/* ---- sums ---- */

static uint64_t *quantities(struct sl_block_totals *totals) {
  _Static_assert(sizeof *totals == SL_QUANTITIES * sizeof(uint64_t), "one by one");
  return (uint64_t *)totals;
}

static void sums_update(struct player *p, size_t allocation) {
  struct sl_block_totals now = *sl_chooser_totals(p->chooser);
  uint64_t *values = quantities(&now), *peaks = quantities(&p->out->peaks[p->period]);
  for (int i = 0; i < SL_QUANTITIES; i++) {
    if (values[i] > peaks[i])
      peaks[i] = values[i];
    if (values[i] <= p->out->highest[i].bytes)
      continue;
    p->out->highest[i] = (struct sl_replay_peak){values[i], p->period, allocation};
    if (i == 1)
      memcpy(p->out->categories, p->categories, p->tape->categories.count * sizeof *p->categories);
  }
}

static void stop(struct player *p, size_t allocation, uint64_t bytes, bool was_served) {
  p->out->stop.is_one = true;
  p->out->stop.was_served = was_served;
  p->out->stop.period = p->period;
  p->out->stop.allocation = allocation;
  p->out->stop.bytes = bytes;
  p->out->stop.reserved_bytes = sl_chooser_totals(p->chooser)->reserved_bytes;
}

/* ---- allocations ---- */

static int play_alloc(struct player *p, const struct step *step) {
  struct sl_live_object *object = sl_live_begin(p->objects, step->own, step->repeated);
  if (!object)
    return -ENOMEM;
  const struct sl_tape_allocation *a = &p->tape->allocations[object->allocation];
  int r = sl_chooser_request(p->chooser, p->places[a->place], a->requested, &object->block);
  if (r < 0)
    return r;
  if (r > 0) {
    sums_update(p, object->allocation);
    stop(p, object->allocation, a->requested, false);
    return 0;
  }
  p->categories[a->category] += sl_chosen_bytes(object->block);
  sums_update(p, object->allocation);
  return 0;
}

static int complete(struct player *p, struct sl_live_object *object) {
  if (object->allocation == UINT32_MAX) { /* it has been: such a record contradicts itself */
    p->out->unmatched++;
    return 0;
  }
  int r = sl_chooser_complete(p->chooser, object->block);
  sl_live_end(p->objects, object);
  return r;
}

static bool is_deferred(const struct player *p, const struct sl_live_object *object) {
  const struct sl_tape_allocation *a = &p->tape->allocations[object->allocation];
  return a->complete_event != a->free_event + 1;
}

static int play_free(struct player *p, const struct step *step) {
  struct sl_live_object *object = sl_live_find(p->objects, step->own, step->repeated, false);
  if (!object || object->freed || !object->block) {
    p->out->unmatched++;
    return 0;
  }
  p->categories[p->tape->allocations[object->allocation].category] -= sl_chosen_bytes(object->block);
  object->freed = true;
  sl_chooser_release(p->chooser, object->block);
  if (!is_deferred(p, object))
    return 0;
  p->out->waits = true;
  return p->options->completions == SL_COMPLETIONS_at_once ? sl_chooser_complete(p->chooser, object->block) : 0;
}

static int play_complete(struct player *p, const struct step *step) {
  struct sl_live_object *object = sl_live_find(p->objects, step->own, step->repeated, true);
  if (!object || !object->freed || object->allocation == UINT32_MAX) {
    p->out->unmatched++;
    return 0;
  }
  if (p->options->completions != SL_COMPLETIONS_late || !is_deferred(p, object))
    return complete(p, object);
  struct sl_live_object **added = SL_LIST_ADD(p->late, p->late_count);
  if (!added)
    return -ENOMEM;
  *added = object;
  return 0;
}

/* ---- segments ---- */

/* Segments that were given back in a row: how many events, of which pools, and whether an ordinary one of each. */
static size_t sweep_length(const struct player *p, size_t first) {
  const struct sl_tape_event *events = p->tape->events;
  size_t end = first + 1;
  while (end < p->tape->event_count && events[end].kind == SL_TAPE_segment &&
         events[end].number == events[end - 1].number + 1 &&
         p->tape->segments[events[end].index].action == SL_TAPE_returned)
    end++;
  return end - first;
}

static const struct sl_tape_segment *segment_at(const struct player *p, size_t event) {
  return &p->tape->segments[p->tape->events[event].index];
}

static uint32_t pool_of(const struct player *p, const struct sl_tape_segment *segment) {
  return p->tape->places[segment->place].pool;
}

/* Whether all that could be given back of a pool was: so empty_cache does, and a last retry. */
static bool is_whole(const struct player *p, size_t first, size_t count, uint32_t pool) {
  uint64_t returned = 0;
  for (size_t i = first; i < first + count; i++) {
    if (segment_at(p, i)->is_range)
      return true;
    returned += pool_of(p, segment_at(p, i)) == pool;
  }
  return returned == sl_chooser_idle_segments(p->chooser, pool);
}

static enum sl_sweep sweep_kind(const struct player *p, size_t first, size_t count) {
  const size_t next = first + count;
  for (size_t i = first; i < next; i++)
    if (segment_at(p, i)->after_refusal || !is_whole(p, first, count, pool_of(p, segment_at(p, i))))
      return SL_SWEEP_within_request;
  if (next == p->tape->event_count || p->tape->events[next].kind != SL_TAPE_segment)
    return SL_SWEEP_empty_cache;
  const struct sl_tape_segment *then = segment_at(p, next);
  const uint64_t limit = p->options->limit_bytes, reserved = sl_chooser_totals(p->chooser)->reserved_bytes;
  const bool collects = limit && p->config.collection_threshold > 0 &&
                        reserved > (uint64_t)(p->config.collection_threshold * (double)limit);
  const bool no_room = limit && reserved + then->bytes > limit;
  return then->action == SL_TAPE_refused || (then->action == SL_TAPE_taken && (collects || no_room))
             ? SL_SWEEP_within_request
             : SL_SWEEP_empty_cache;
}

static bool is_first_of_pool(const struct player *p, size_t first, size_t event) {
  for (size_t i = first; i < event; i++)
    if (pool_of(p, segment_at(p, i)) == pool_of(p, segment_at(p, event)))
      return false;
  return true;
}

/* As it was: pool by pool all of it, or these. */
static int sweep_repeat(struct player *p, size_t first, size_t count) {
  int r = 0;
  for (size_t i = first; i < first + count && r == 0; i++) {
    const uint32_t pool = pool_of(p, segment_at(p, i));
    if (!is_first_of_pool(p, first, i))
      continue;
    if (is_whole(p, first, count, pool)) {
      r = sl_chooser_empty(p->chooser, pool);
      continue;
    }
    for (size_t j = i; j < first + count; j++)
      if (pool_of(p, segment_at(p, j)) == pool)
        p->out->unmatched += sl_chooser_give_back(p->chooser, segment_at(p, j)->address) != 0;
  }
  return r;
}

/* There was no room for so many bytes more. */
static void no_room(struct player *p, uint64_t bytes) {
  const uint64_t refused = sl_chooser_totals(p->chooser)->reserved_bytes + bytes;
  if (!p->out->refused_bytes || refused < p->out->refused_bytes)
    p->out->refused_bytes = refused;
}

static int play_sweep(struct player *p, size_t first) {
  const size_t count = sweep_length(p, first), next = first + count;
  const uint32_t index = p->tape->events[first].index;
  if (is_unchanged(p)) {
    p->out->sweeps[index] = (uint8_t)sweep_kind(p, first, count);
    if (p->out->sweeps[index] == SL_SWEEP_within_request && next < p->tape->event_count &&
        p->tape->events[next].kind == SL_TAPE_segment && segment_at(p, next)->action == SL_TAPE_taken)
      no_room(p, segment_at(p, next)->bytes);
    return sweep_repeat(p, first, count);
  }
  if (p->options->sweeps[index] != SL_SWEEP_empty_cache)
    return 0;
  int r = 0;
  for (size_t i = first; i < first + count && r == 0; i++)
    if (is_first_of_pool(p, first, i))
      r = sl_chooser_empty(p->chooser, pool_of(p, segment_at(p, i)));
  return r;
}

static int play_segment(struct player *p, size_t event) {
  const struct sl_tape_segment *segment = segment_at(p, event);
  const bool begins = event == 0 || p->tape->events[event - 1].kind != SL_TAPE_segment ||
                      p->tape->events[event - 1].number + 1 != p->tape->events[event].number ||
                      segment_at(p, event - 1)->action != SL_TAPE_returned;
  if (segment->action == SL_TAPE_returned)
    return begins ? play_sweep(p, event) : 0;
  if (segment->action == SL_TAPE_refused && is_unchanged(p))
    no_room(p, sl_allocator_segment(&p->config, segment->bytes));
  if (segment->action != SL_TAPE_refused || is_unchanged(p))
    return 0;
  if (!p->options->limit_bytes && !p->options->capacity_bytes)
    return 0; /* nothing came of it, and with room without end nothing is known of it */
  struct sl_chosen_block *block;
  int r = sl_chooser_request(p->chooser, p->places[segment->place], segment->bytes, &block);
  sums_update(p, SIZE_MAX);
  if (r == 0)
    stop(p, SIZE_MAX, segment->bytes, true);
  return r < 0 ? r : 0;
}

/* ---- a period ---- */

static int play_step(struct player *p, const struct step *step) {
  switch (step->kind) {
  case SL_TAPE_alloc: return play_alloc(p, step);
  case SL_TAPE_free: return play_free(p, step);
  case SL_TAPE_complete: return play_complete(p, step);
  default: return 0;
  }
}

/* Of an event in its period. */
static uint64_t position_of(const struct sl_tape_event *event, const struct sl_tape_period *period) {
  return (event->number - period->first_event) << 30 | event->place;
}

static int play_events(struct player *p, const struct sl_tape_period *period, const struct sl_tape_period *repeated) {
  const struct sl_tape_event *events = p->tape->events;
  size_t own = period->first, other = repeated ? repeated->first : 0, other_end = repeated ? repeated->end : 0;
  int r = 0;
  while (r == 0 && !p->out->stop.is_one && (own < period->end || other < other_end)) {
    const uint64_t at = own < period->end ? position_of(&events[own], period) : UINT64_MAX;
    const uint64_t other_at = other < other_end ? position_of(&events[other], repeated) : UINT64_MAX;
    struct step step = {.kind = SL_TAPE_segment, .own = UINT32_MAX, .repeated = UINT32_MAX};
    if (own < period->end)
      limit_draw(p, events[own].number);
    if (at <= other_at && events[own].kind == SL_TAPE_segment) {
      r = play_segment(p, own);
    } else if (at <= other_at) {
      step = (struct step){events[own].kind, events[own].index, UINT32_MAX};
    }
    if (other_at <= at && events[other].kind != SL_TAPE_segment &&
        (step.own == UINT32_MAX || step.kind == events[other].kind)) {
      step.kind = events[other].kind;
      step.repeated = events[other].index;
    }
    own += at <= other_at;
    other += other_at <= at;
    if (r == 0)
      r = play_step(p, &step);
  }
  return r;
}

/* With room without end the requests are served whatever is chosen, so what was requested is known. */
static void open_note(struct player *p) {
  const struct sl_chooser_open open = sl_chooser_open(p->chooser);
  const bool has_limit = p->options->limit_bytes || p->options->capacity_bytes;
  const bool is_open[SL_QUANTITIES] = {open.segments && has_limit, open.sizes, open.sizes, open.segments};
  for (int i = 0; i < SL_QUANTITIES; i++)
    if (is_open[i] && p->out->open_from[i] == SIZE_MAX)
      p->out->open_from[i] = p->period;
}

static int play_period(struct player *p, size_t index) {
  const struct sl_tape_period *period = &p->tape->periods[index];
  const struct sl_tape_period *repeated = period->same_as >= 0 ? sl_tape_period_find(p->tape, period->same_as) : NULL;
  p->period = index;
  limit_draw(p, period->first_event);
  int r = sl_live_period(p->objects, period, repeated);
  if (r < 0)
    return r;
  p->out->peaks[index] = *sl_chooser_totals(p->chooser);
  sums_update(p, SIZE_MAX);
  r = play_events(p, period, repeated);
  while (p->late_count && r == 0)
    r = complete(p, p->late[--p->late_count]);
  p->out->ends[index] = *sl_chooser_totals(p->chooser);
  open_note(p);
  return r;
}

/*
 * How many periods from this one on come out as those before them; their figures are copied. Not where segments are
 * given back for room, or by age: how often is told, and ages are in no signature.
 */
static size_t skip(struct player *p, size_t period) {
  if (!sl_cycles_is_pure(p->tape, period) || p->config.collection_threshold > 0 || sl_chooser_retries(p->chooser) ||
      !p->is_limited)
    return 0;
  size_t length = 0;
  const uint64_t signature = sl_live_signature(p->objects, sl_chooser_signature(p->chooser));
  const size_t count = sl_cycles_skip(p->cycles, period, signature, &length);
  for (size_t i = period; i < period + count; i++) {
    p->out->peaks[i] = p->out->peaks[i - length];
    p->out->ends[i] = p->out->ends[i - length];
  }
  return count;
}

/* ---- before the first event ---- */

/* Requests up to 1 MiB have segments of their own: those in it tell, or its size where nothing is. */
static bool is_small(const struct player *p, const struct sl_tape_segment *segment) {
  for (size_t i = 0; i < p->tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &p->tape->allocations[i];
    if (!a->alloc_event && a->address >= segment->address && a->address < segment->address + segment->bytes)
      return a->bytes <= SL_ALLOCATOR_SMALL_BYTES;
  }
  return segment->bytes == (UINT64_C(2) << 20);
}

static int restore(struct player *p) {
  int r = 0;
  for (size_t i = 0; i < p->tape->segment_count && r == 0; i++) {
    const struct sl_tape_segment *segment = &p->tape->segments[i];
    if (segment->action != SL_TAPE_existing)
      continue;
    r = sl_chooser_restore_segment(p->chooser, p->places[segment->place], segment->address, segment->bytes,
                                   is_small(p, segment));
    if (r == 0)
      r = sl_segment_addresses_keep(p->addresses, segment->address, segment->bytes);
  }
  for (uint32_t i = 0; i < p->tape->allocation_count && r == 0; i++) {
    const struct sl_tape_allocation *a = &p->tape->allocations[i];
    if (a->alloc_event)
      continue;
    struct sl_live_object *object = sl_live_begin(p->objects, i, UINT32_MAX);
    r = object ? sl_chooser_restore_block(p->chooser, a->address, a->bytes, a->requested, &object->block) : -ENOMEM;
    if (r == 0)
      p->categories[a->category] += a->bytes;
    p->out->unmatched += r == -EINVAL;
    r = r == -EINVAL ? 0 : r;
  }
  return r;
}

static int player_begin(struct player *p) {
  const struct sl_tape *tape = p->tape;
  const bool limits = !is_unchanged(p);
  p->is_limited = !limits || !p->options->limit_event;
  p->addresses = sl_segment_addresses_new(tape, p->options->addresses, p->options->seed);
  p->objects = sl_live_objects_new(tape);
  p->cycles = sl_cycles_new(tape);
  p->places = calloc(tape->place_count + 1, sizeof *p->places);
  p->categories = calloc(tape->categories.count + 1, sizeof *p->categories);
  p->out->peaks = calloc(tape->period_count, sizeof *p->out->peaks);
  p->out->ends = calloc(tape->period_count, sizeof *p->out->ends);
  p->out->categories = calloc(tape->categories.count + 1, sizeof *p->out->categories);
  p->out->sweeps = calloc(tape->segment_count + 1, sizeof *p->out->sweeps);
  struct sl_chooser_options options = {
      .source = {p->addresses, sl_segment_addresses_place, sl_segment_addresses_gone},
      .limit_bytes = limits && p->is_limited ? p->options->limit_bytes : 0,
      .capacity_bytes = limits ? p->options->capacity_bytes : 0,
      .device_bytes = tape->device_bytes,
  };
  sl_allocator_config_parse(p->options->config ? p->options->config : tape->config, &options.config);
  p->config = options.config;
  p->chooser = sl_chooser_new(&options);
  if (!p->addresses || !p->objects || !p->cycles || !p->places || !p->categories || !p->out->peaks || !p->out->ends ||
      !p->out->categories || !p->out->sweeps || !p->chooser)
    return -ENOMEM;
  int r = 0;
  for (size_t i = 0; i < tape->place_count && r == 0; i++)
    r = sl_chooser_place(p->chooser, tape->places[i].stream, tape->places[i].pool, &p->places[i]);
  return r < 0 ? r : restore(p);
}

static bool differs(const struct sl_tape *tape, const struct sl_replay *replay, size_t period) {
  return memcmp(&replay->peaks[period], &tape->periods[period].peak, sizeof *replay->peaks) != 0 ||
         memcmp(&replay->ends[period], &tape->periods[period].last, sizeof *replay->ends) != 0;
}

int sl_replay_run(const struct sl_tape *tape, const struct sl_replay_options *options, struct sl_replay *out) {
  struct player p = {.tape = tape, .options = options, .out = out};
  *out = (struct sl_replay){.open_from = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX}};
  int r = player_begin(&p);
  size_t i = 0, off = 0;
  while (i < tape->period_count && r == 0 && !out->stop.is_one && off < SL_REPLAY_OFF) {
    size_t count = skip(&p, i);
    if (!count) {
      r = play_period(&p, i);
      count = 1;
    }
    for (; count && off < SL_REPLAY_OFF; count--, i++)
      off += is_unchanged(&p) && differs(tape, out, i);
  }
  out->played = off < SL_REPLAY_OFF ? tape->period_count : i;
  if (p.chooser)
    out->retries = sl_chooser_retries(p.chooser);
  p.chooser = sl_chooser_free(p.chooser);
  p.addresses = sl_segment_addresses_free(p.addresses);
  p.objects = sl_live_objects_free(p.objects);
  p.cycles = sl_cycles_free(p.cycles);
  free(p.late);
  free(p.places);
  free(p.categories);
  if (r < 0)
    sl_replay_free(out);
  return r;
}

void sl_replay_free(struct sl_replay *replay) {
  free(replay->peaks);
  free(replay->ends);
  free(replay->categories);
  free(replay->sweeps);
  *replay = (struct sl_replay){0};
}

size_t sl_replay_differences(const struct sl_tape *tape, const struct sl_replay *replay, size_t *first) {
  size_t count = 0;
  for (size_t i = replay->played; i-- > 0;)
    if (differs(tape, replay, i)) {
      count++;
      *first = i;
    }
  return count;
}

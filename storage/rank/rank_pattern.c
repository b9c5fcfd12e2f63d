/* Patterns: words into hashes, one for the order of the period and one for each thread. */
#include "rank_pattern.h"

#include "rank_allocations.h"
#include "rank_period.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum entry {
  ENTRY_allocator = 1,
  ENTRY_free_of_step,  /* of an allocation of this step or the one before */
  ENTRY_free_of_older, /* of one made long ago, which no number says */
  ENTRY_opened,
  ENTRY_closed,
  ENTRY_payload,
  ENTRY_call,
  ENTRY_decided,
  ENTRY_snapshot,
  ENTRY_peak,
  ENTRY_peak_category,
  ENTRY_owner,
  ENTRY_figures,
  ENTRY_mark,
};

/* Small pieces wait for each other: XXH3 takes some eighty instructions for each call, whatever it adds. */
struct stream {
  XXH3_state_t *state; /* owned */
  size_t held;
  char bytes[512];
};

struct thread_pattern { /* what one thread did in this step */
  uint32_t thread;
  uint32_t opened; /* ranges so far */
  uint64_t entries;
  struct stream stream;
  UT_hash_handle hh;
};

struct sl_rank_pattern {
  struct stream order;
  struct thread_pattern *threads, *latest;
  uint64_t entries;
  bool has_failed; /* memory ran out, and something is missing */
};

static bool stream_open(struct stream *stream) {
  stream->state = XXH3_createState();
  return stream->state && XXH3_128bits_reset(stream->state) == XXH_OK;
}

static void stream_flush(struct stream *stream) {
  XXH3_128bits_update(stream->state, stream->bytes, stream->held);
  stream->held = 0;
}

static void stream_add(struct stream *stream, const void *bytes, size_t count) {
  if (count > sizeof stream->bytes - stream->held)
    stream_flush(stream);
  if (count > sizeof stream->bytes) {
    XXH3_128bits_update(stream->state, bytes, count);
    return;
  }
  memcpy(stream->bytes + stream->held, bytes, count);
  stream->held += count;
}

/* The hash of what was added since the last time. */
static XXH128_hash_t stream_take(struct stream *stream) {
  stream_flush(stream);
  XXH128_hash_t hash = XXH3_128bits_digest(stream->state);
  XXH3_128bits_reset(stream->state);
  return hash;
}

struct sl_rank_pattern *sl_rank_pattern_new(void) {
  struct sl_rank_pattern *pattern = calloc(1, sizeof *pattern);
  if (!pattern)
    return NULL;
  return stream_open(&pattern->order) ? pattern : sl_rank_pattern_free(pattern);
}

static void thread_free(struct sl_rank_pattern *pattern, struct thread_pattern *thread) {
  if (pattern->latest == thread)
    pattern->latest = NULL;
  HASH_DEL(pattern->threads, thread);
  XXH3_freeState(thread->stream.state);
  free(thread);
}

struct sl_rank_pattern *sl_rank_pattern_free(struct sl_rank_pattern *pattern) {
  if (!pattern)
    return NULL;
  struct thread_pattern *thread, *next;
  HASH_ITER(hh, pattern->threads, thread, next) thread_free(pattern, thread);
  XXH3_freeState(pattern->order.state);
  free(pattern);
  return NULL;
}

/* ---- entries ---- */

#define ADD(stream, ...) stream_add(stream, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}))

static void text_add(struct stream *stream, const char *text) {
  size_t length = text ? strlen(text) : 0;
  ADD(stream, length);
  stream_add(stream, text ? text : "", length);
}

/* A name but for the number at its end. */
static void name_add(struct stream *stream, const char *name) {
  size_t length = strlen(name);
  while (length && name[length - 1] >= '0' && name[length - 1] <= '9')
    length--;
  ADD(stream, length);
  stream_add(stream, name, length);
}

static struct thread_pattern *thread_of(struct sl_rank_pattern *pattern, uint32_t number) {
  struct thread_pattern *thread = pattern->latest;
  if (thread && thread->thread == number)
    return thread;
  HASH_FIND(hh, pattern->threads, &number, sizeof number, thread);
  if (!thread) {
    thread = calloc(1, sizeof *thread);
    if (!thread || !stream_open(&thread->stream)) {
      free(thread);
      return NULL;
    }
    thread->thread = number;
    XXH3_state_t *state = thread->stream.state;
    SL_HASH_ADD(pattern->threads, thread, thread);
    if (!thread) {
      XXH3_freeState(state);
      return NULL;
    }
  }
  pattern->latest = thread;
  return thread;
}

/* The stream of a thread; NULL: no memory, or no pattern. */
static struct stream *stream_of(struct sl_rank_pattern *pattern, uint32_t number) {
  struct thread_pattern *thread = pattern ? thread_of(pattern, number) : NULL;
  if (!thread) {
    if (pattern)
      pattern->has_failed = true;
    return NULL;
  }
  thread->entries++;
  return &thread->stream;
}

/* Which phase, in one word: its number among those of its thread in the step in which it began, and what it is. */
static uint64_t phase_word(const struct sl_phase *phase) {
  return phase ? (uint64_t)phase->number << 32 | (uint64_t)phase->kind << 16 | (uint64_t)phase->point << 8 | 1 : 0;
}

static uint64_t module_word(const struct sl_phase *phase) {
  return phase ? phase->module : 0;
}

void sl_rank_pattern_opened(struct sl_rank_pattern *pattern, struct sl_phase *phase) {
  struct stream *stream = stream_of(pattern, phase->thread);
  if (!stream)
    return;
  phase->number = ++pattern->latest->opened;
  ADD(stream, ENTRY_opened, phase_word(phase), phase->module, phase->call_index, phase_word(phase->parent),
      module_word(phase->parent));
  name_add(stream, phase->kind == SL_KIND_step ? "" : phase->name);
}

void sl_rank_pattern_closed(struct sl_rank_pattern *pattern, const struct sl_phase *phase) {
  struct stream *stream = stream_of(pattern, phase->thread);
  if (stream)
    ADD(stream, ENTRY_closed, phase_word(phase), phase->module);
}

void sl_rank_pattern_allocator(struct sl_rank_pattern *pattern, const struct sl_pattern_allocation *e) {
  if (!pattern)
    return;
  const struct sl_allocation *ended = e->ended;
  const uint64_t what = (uint64_t)e->action | (uint64_t)e->place << 8;
  struct stream *order = &pattern->order;
  pattern->entries++;
  if (!ended)
    ADD(order, ENTRY_allocator, what, e->bytes, e->block_bytes, phase_word(e->phase), module_word(e->phase));
  else if (ended->alloc_at > e->recent_since)
    ADD(order, ENTRY_free_of_step, what, ended->number ? ended->number : ended->id - e->first_allocation,
        (uint64_t)(ended->number > 0), ended->bytes, phase_word(e->phase), module_word(e->phase));
  else
    ADD(order, ENTRY_free_of_older, what, ended->bytes, ended->requested_bytes, ended->place,
        (uint64_t)ended->category << 32 | ended->rule, ended->module, phase_word(e->phase), module_word(e->phase));
}

void sl_rank_pattern_event(struct sl_rank_pattern *pattern, const struct sl_event *event, const struct sl_log *log,
                           const struct sl_phases *phases) {
  if (!pattern)
    return;
  switch (event->type) {
  case SL_EVENT_range_push: {
    const struct sl_event_range_push *push = event->payload;
    struct stream *stream = sl_phases_ignores(phases, push->domain) ? stream_of(pattern, event->thread) : NULL;
    if (stream) {
      ADD(stream, ENTRY_call, push->domain);
      text_add(stream, sl_log_string(log, push->name));
    }
    return;
  }
  case SL_EVENT_range_payload: {
    const struct sl_event_range_payload *payload = event->payload;
    struct stream *stream = sl_phases_ignores(phases, payload->domain) ? stream_of(pattern, event->thread) : NULL;
    if (stream) {
      ADD(stream, ENTRY_payload, payload->schema, payload->length);
      stream_add(stream, payload + 1, payload->length);
    }
    return;
  }
  case SL_EVENT_range_mark: {
    const struct sl_event_range_mark *mark = event->payload;
    struct stream *stream = stream_of(pattern, event->thread);
    if (stream) {
      ADD(stream, ENTRY_mark, mark->domain);
      name_add(stream, sl_log_string(log, mark->name));
    }
    return;
  }
  case SL_EVENT_nccl_call: {
    const struct sl_event_nccl_call *call = event->payload;
    struct stream *stream = stream_of(pattern, event->thread);
    if (!stream)
      return;
    ADD(stream, ENTRY_call, call->communicator, call->count, call->root,
        (uint64_t)call->channels << 16 | call->point_to_point);
    text_add(stream, sl_log_string(log, call->function));
    text_add(stream, sl_log_string(log, call->datatype));
    text_add(stream, sl_log_string(log, call->algorithm));
    text_add(stream, sl_log_string(log, call->protocol));
    return;
  }
  default: return;
  }
}

void sl_rank_pattern_snapshot(struct sl_rank_pattern *pattern, const struct sl_item *item, int category, uint64_t bytes,
                              uint64_t tracker_bytes) {
  if (pattern)
    ADD(&pattern->order, ENTRY_snapshot, (uint64_t)item->state << 32 | item->module,
        (uint64_t)category << 32 | item->call_index, bytes, tracker_bytes);
}

void sl_rank_pattern_peak(struct sl_rank_pattern *pattern, uint64_t key, const struct sl_sample *sample,
                          const struct sl_own_bytes *own) {
  if (!pattern)
    return;
  ADD(&pattern->order, ENTRY_peak, key, sample->allocated_bytes, own->alone, own->with_children);
  for (int c = 0; c < SL_CATEGORY_limit; c++)
    if (sample->category_bytes[c])
      ADD(&pattern->order, ENTRY_peak_category, (uint64_t)c, sample->category_bytes[c]);
}

void sl_rank_pattern_owner(struct sl_rank_pattern *pattern, const struct sl_memory_owner *owner) {
  if (!pattern)
    return;
  ADD(&pattern->order, ENTRY_owner, (uint64_t)owner->category << 32 | owner->module, owner->bytes, owner->allocations);
  text_add(&pattern->order, owner->detail);
  text_add(&pattern->order, owner->phase);
}

/* ---- the end of a period ---- */

void sl_rank_pattern_decisions(const struct sl_rank_period *p, const struct sl_rank_allocations *all) {
  struct stream *order = p->pattern ? &p->pattern->order : NULL;
  for (size_t i = all->count; i-- > 0 && all->list[i]->alloc_at > p->decided_at && order;) {
    const struct sl_allocation *a = all->list[i];
    if (p->ended_at && a->alloc_at > p->ended_at)
      continue;
    ADD(order, ENTRY_decided, (uint64_t)a->category << 32 | (uint64_t)a->rule << 16 | (a->step >= 0), a->module,
        a->requested_bytes, a->bytes);
    text_add(order, a->tag_name);
  }
}

static void sums_add(struct stream *stream, const struct sl_block_totals *sums) {
  ADD(stream, ENTRY_figures, sums->requested_bytes, sums->allocated_bytes, sums->active_bytes, sums->reserved_bytes);
}

int sl_rank_pattern_take(const struct sl_rank_period *p, const struct sl_rank_allocations *all,
                         struct sl_period_pattern *out) {
  struct sl_rank_pattern *pattern = p->pattern;
  sl_rank_pattern_decisions(p, all);
  ADD(&pattern->order, ENTRY_figures, (uint64_t)p->row.kind);
  sums_add(&pattern->order, &p->row.peak);
  sums_add(&pattern->order, &p->row.end);
  *out = (struct sl_period_pattern){.allocator_events = pattern->entries};
  uint64_t low = 0, high = 0; /* a sum: threads in any order */
  struct thread_pattern *thread, *next;
  HASH_ITER(hh, pattern->threads, thread, next) {
    if (!thread->entries) {
      thread_free(pattern, thread); /* it may have ended; of many threads few do something in each step */
      continue;
    }
    XXH128_hash_t hash = stream_take(&thread->stream);
    low += hash.low64;
    high += hash.high64;
    out->range_events += thread->entries;
    thread->entries = thread->opened = 0;
  }
  ADD(&pattern->order, low, high);
  XXH128_hash_t hash = stream_take(&pattern->order);
  out->low = hash.low64;
  out->high = hash.high64;
  pattern->entries = 0;
  return pattern->has_failed ? -ENOMEM : 0;
}

/* Puts events that were recorded afterwards where their times belong. */
#include "log_past.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX (64u << 20)

struct held {
  struct held *next;
  struct sl_event event;
  uint64_t payload[];
};

struct queue {
  struct held *first, *last;
};

/* An allocator_site or an allocator_note event, which goes where its allocator event goes. */
struct ahead {
  struct sl_event event; /* type 0: none */
  uint32_t sequence;
  union {
    struct sl_event_allocator_site site;
    struct sl_event_allocator_note note;
  } payload;
};

struct sl_log_past {
  struct sl_log *log;
  bool follows, ended;
  bool on, asked;              /* whether the log is one of a history; asked since the last look at it */
  struct queue recorded, past; /* in the order of their times, each */
  struct held *given;          /* the event that was given last is its */
  uint64_t held_bytes;
  uint64_t told_ns;      /* up to here the history is whole */
  uint64_t given_ns;     /* up to here all has been given */
  uint64_t last_ns;      /* of the history's event before; 0: none had a time */
  struct ahead ahead[2]; /* a site and a note, whose allocator event comes next on their thread */
  struct {               /* an allocator_time event whose allocator event comes next on its thread; at_ns 0: none */
    uint64_t at_ns;
    uint32_t thread, sequence;
  } next;
};

struct sl_log_past *sl_log_past_new(struct sl_log *log, bool follows) {
  struct sl_log_past *past = calloc(1, sizeof *past);
  if (past) {
    past->log = log;
    past->follows = follows;
  }
  return past;
}

static struct held *queue_take(struct queue *queue) {
  struct held *held = queue->first;
  queue->first = held->next;
  if (!queue->first)
    queue->last = NULL;
  return held;
}

static void queue_clear(struct queue *queue) {
  while (queue->first)
    free(queue_take(queue));
}

struct sl_log_past *sl_log_past_free(struct sl_log_past *past) {
  if (!past)
    return NULL;
  queue_clear(&past->recorded);
  queue_clear(&past->past);
  free(past->given);
  free(past);
  return NULL;
}

static int queue_put(struct sl_log_past *past, struct queue *queue, const struct sl_event *event) {
  struct held *held = malloc(sizeof *held + event->bytes);
  if (!held)
    return -ENOMEM;
  memcpy(held->payload, event->payload, event->bytes);
  held->next = NULL;
  held->event = *event;
  held->event.payload = held->payload;
  if (queue->last)
    queue->last->next = held;
  else
    queue->first = held;
  queue->last = held;
  past->held_bytes += sizeof *held + event->bytes;
  return 0;
}

static void ahead_put(struct ahead *ahead, const struct sl_event *event, uint32_t sequence) {
  if (event->bytes > sizeof ahead->payload)
    return;
  ahead->event = *event;
  ahead->sequence = sequence;
  memcpy(&ahead->payload, event->payload, event->bytes);
  ahead->event.payload = &ahead->payload;
}

/* An allocator event, after what was told ahead of it. */
static int allocator_put(struct sl_log_past *past, struct queue *queue, const struct sl_event *event) {
  const struct sl_event_allocator *e = event->payload;
  int r = 0;
  for (size_t i = 0; i < 2 && r == 0; i++) {
    struct ahead *ahead = &past->ahead[i];
    if (ahead->event.type && ahead->event.thread == event->thread && ahead->sequence == e->sequence) {
      ahead->event.time_ns = event->time_ns;
      r = queue_put(past, queue, &ahead->event);
    }
    ahead->event.type = 0;
  }
  return r < 0 ? r : queue_put(past, queue, event);
}

/* The next one in time, if it may be given. */
static struct held *take_due(struct sl_log_past *past) {
  const struct held *recorded = past->recorded.first, *before = past->past.first;
  const bool is_past = before && (!recorded || before->event.time_ns <= recorded->event.time_ns);
  const struct held *next = is_past ? before : recorded;
  if (!next || (next->event.time_ns > past->told_ns && past->held_bytes <= HELD_MAX && !past->ended))
    return NULL;
  struct held *taken = queue_take(is_past ? &past->past : &past->recorded);
  past->held_bytes -= sizeof *taken + taken->event.bytes;
  if (taken->event.time_ns > past->given_ns)
    past->given_ns = taken->event.time_ns;
  return taken;
}

/*
 * The allocator's order is that of its numbers, which is the order of recording: so a time never goes back, and one
 * that is missing (lost, or of an older version's log) is that of the event before. Its place is then not known, nor
 * where it comes too late.
 */
static int past_put(struct sl_log_past *past, struct sl_event *event) {
  const struct sl_event_allocator *e = event->payload;
  const bool known = past->next.at_ns && past->next.thread == event->thread && past->next.sequence == e->sequence;
  uint64_t at_ns = known ? past->next.at_ns : past->last_ns;
  past->next.at_ns = 0;
  event->past = known ? SL_PAST_placed : SL_PAST_unplaced;
  if (!at_ns)
    return allocator_put(past, &past->recorded, event);
  if (at_ns > event->time_ns)
    at_ns = event->time_ns;
  if (at_ns < past->given_ns) {
    at_ns = past->given_ns;
    event->past = SL_PAST_unplaced;
  }
  if (at_ns < past->last_ns)
    at_ns = past->last_ns;
  event->time_ns = past->last_ns = at_ns;
  return allocator_put(past, &past->past, event);
}

/* 1: give the event at once; 0: it waits. */
static int sort(struct sl_log_past *past, struct sl_event *event) {
  switch (event->type) {
  case SL_EVENT_allocator_time: {
    const struct sl_event_allocator_time *time = event->payload;
    past->next.at_ns = time->at_ns;
    past->next.thread = event->thread;
    past->next.sequence = time->sequence;
    return 0;
  }
  case SL_EVENT_allocator_site:
    ahead_put(&past->ahead[0], event, ((const struct sl_event_allocator_site *)event->payload)->sequence);
    return 0;
  case SL_EVENT_allocator_note:
    ahead_put(&past->ahead[1], event, ((const struct sl_event_allocator_note *)event->payload)->sequence);
    return 0;
  case SL_EVENT_allocator_told: {
    const struct sl_event_allocator_told *told = event->payload;
    if (told->until_ns > past->told_ns)
      past->told_ns = told->until_ns;
    return 0;
  }
  case SL_EVENT_allocator: return event->salvaged ? queue_put(past, &past->recorded, event) : past_put(past, event);
  case SL_EVENT_process_end: past->ended = true; break;
  default: break;
  }
  return event->thread == 0 ? 1 : queue_put(past, &past->recorded, event);
}

/* Definitions come first, so that it is known before anything has to wait. */
static bool is_history(const struct sl_log *log) {
  const char *fidelity = sl_log_info(log, "fidelity");
  return fidelity && strcmp(fidelity, "history") == 0;
}

/* 1: give the event, which is of a history, at once; 0: it waits; or a negative errno. */
static int take(struct sl_log_past *past, struct sl_event *event, struct sl_error *error) {
  const int r = sort(past, event);
  return r < 0 ? sl_no_memory(error) : r;
}

static int next_of_history(struct sl_log_past *past, struct sl_event *event, struct sl_error *error) {
  free(past->given);
  for (int r = 0;;) {
    past->given = take_due(past);
    if (past->given) {
      *event = past->given->event;
      return 1;
    }
    r = sl_log_next(past->log, event, error);
    if (r == 0) {
      past->asked = false;
      if (past->ended || past->follows)
        return 0;
      past->ended = true;
      continue;
    }
    r = r < 0 ? r : take(past, event, error);
    if (r != 0)
      return r;
  }
}

/* A definition has been given, or nothing: which kind of log it is may be known now. */
static int next_of_unknown(struct sl_log_past *past, struct sl_event *event, struct sl_error *error, int r) {
  past->asked = r != 0;
  if (r <= 0)
    return r;
  past->on = is_history(past->log);
  if (past->on)
    r = take(past, event, error);
  return r == 0 ? next_of_history(past, event, error) : r;
}

int sl_log_past_next(struct sl_log_past *past, struct sl_event *event, struct sl_error *error) {
  if (!past->on && !past->asked)
    past->on = is_history(past->log);
  past->asked = true;
  if (past->on)
    return next_of_history(past, event, error);
  const int r = sl_log_next(past->log, event, error);
  return r > 0 && event->thread != 0 ? r : next_of_unknown(past, event, error, r);
}

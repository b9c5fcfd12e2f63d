/* AdamW's first step: each parameter with a gradient gets exp_avg and exp_avg_sq, in order; then come temporaries. */
#include "continuation_cut.h"

#include "storage/allocator/allocator_config.h"
#include "storage/grow.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parameter {
  uint64_t bytes;
  int64_t states[2];      /* allocation.id of exp_avg and exp_avg_sq; 0: not made yet */
  bool has_step;          /* on the device: fused or capturable */
  uint32_t place, number; /* of sl_tape.places; as sl_tape_allocation.parameter */
};

struct making {
  struct sl_tape *tape;
  struct parameter *parameters;
  size_t count, states, temporaries; /* states and temporaries that there are */
  uint32_t *made_temporaries;        /* of each parameter, as far as there are; of sl_tape.allocations */
  struct sl_tape_allocation like;
  uint64_t last_event; /* of the latest state */
};

static const struct sl_tape_allocation *allocation_of(const struct sl_tape *tape, int64_t id) {
  size_t low = 0, high = tape->allocation_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (tape->allocations[middle].id < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low < tape->allocation_count && tape->allocations[low].id == id ? &tape->allocations[low] : NULL;
}

static int parameters_read(struct sl_db *db, const struct sl_goal *goal, struct making *m, struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sl_advise_parameters_sql,
                    SL_WITH(SL_NUMBER(":rank", goal->rank), SL_NUMBER(":at", goal->at_ns)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0) {
    const struct sl_tape_allocation *own = allocation_of(m->tape, sl_column_int(row, 0));
    if (!sl_column_int(row, 2) || !own)
      continue; /* without a gradient it has no state */
    struct parameter *added = SL_LIST_ADD(m->parameters, m->count);
    if (!added) {
      r = -ENOMEM;
      break;
    }
    *added = (struct parameter){.bytes = (uint64_t)sl_column_int(row, 1),
                                .states = {sl_column_int(row, 3), sl_column_int(row, 4)},
                                .has_step = sl_column_int(row, 5) != 0,
                                .place = own->place,
                                .number = own->parameter};
  }
  row = sl_statement_close(row);
  return r;
}

/* After the last state: one temporary a parameter, none freed yet. */
static bool are_temporaries(struct making *m, uint64_t from, uint64_t before) {
  for (uint32_t i = 0; i < m->tape->allocation_count; i++) {
    const struct sl_tape_allocation *a = &m->tape->allocations[i];
    if (a->alloc_event < from || a->alloc_event >= before || a->state)
      continue;
    if (a->alloc_event < m->last_event || m->states < 2 * m->count || m->temporaries == m->count ||
        a->requested != m->parameters[m->temporaries].bytes || (a->free_event && a->free_event < before))
      return false;
    m->made_temporaries[m->temporaries++] = i;
  }
  return m->states < 2 * m->count || m->temporaries < m->count;
}

/* Whether the states are those of the first parameters, in this order and of their sizes, and no others were made
 * since. */
static bool is_in_order(struct making *m, uint64_t before) {
  uint64_t first_event = 0;
  bool ended = false;
  for (size_t i = 0; i < 2 * m->count; i++) {
    const struct parameter *p = &m->parameters[i / 2];
    const struct sl_tape_allocation *state = p->states[i % 2] ? allocation_of(m->tape, p->states[i % 2]) : NULL;
    ended |= !state;
    if (p->has_step || (state && ended))
      return false;
    if (!state)
      continue;
    if (state->requested != p->bytes || state->alloc_event <= m->last_event || !state->optimizer_step)
      return false;
    first_event = first_event ? first_event : state->alloc_event;
    m->last_event = state->alloc_event;
    m->like = *state;
    m->states++;
  }
  return m->states >= 2 && are_temporaries(m, first_event, before);
}

static int make(struct making *m, struct sl_cut *cut, const struct parameter *p, uint32_t state, uint32_t category,
                uint32_t *out) {
  struct sl_tape_allocation like = m->like;
  like.id = 0;
  like.state = state;
  like.category = category;
  like.place = p->place;
  like.parameter = p->number;
  like.free_event = like.complete_event = 0;
  int r = sl_tape_add(m->tape, &like, p->bytes, out);
  return r < 0 ? r : sl_cut_put(m->tape, cut, SL_TAPE_alloc, *out);
}

/* The numbers of the states' names: those of the first parameter's two. */
static bool states_name(const struct making *m, uint32_t numbers[static 2]) {
  for (int i = 0; i < 2; i++) {
    const struct sl_tape_allocation *a = allocation_of(m->tape, m->parameters[0].states[i]);
    if (!a || !a->state)
      return false;
    numbers[i] = a->state;
  }
  return true;
}

static int rest_make(struct making *m, struct sl_cut *cut) {
  uint32_t names[2], temp = 0, made = 0;
  if (!states_name(m, names))
    return 0;
  uint32_t *temporaries = m->made_temporaries;
  const uint32_t optstate = m->like.category;
  int r = sl_tape_category(m->tape, "temp", &temp);
  sl_cut_apply(m->tape, cut);
  for (size_t i = m->states; i < 2 * m->count && r == 0; i++)
    r = make(m, cut, &m->parameters[i / 2], names[i % 2], optstate, &made);
  for (size_t i = m->temporaries; i < m->count && r == 0; i++)
    r = make(m, cut, &m->parameters[i], 0, temp, &temporaries[i]);
  for (size_t i = m->count; i-- > 0 && r == 0;) {
    r = sl_cut_put(m->tape, cut, SL_TAPE_free, temporaries[i]);
    r = r < 0 ? r : sl_cut_put(m->tape, cut, SL_TAPE_complete, temporaries[i]);
  }
  sl_tape_sort(m->tape);
  return r < 0 ? r : 1;
}

/* Of what is made next. */
static uint64_t next_bytes(const struct making *m) {
  return m->parameters[m->states < 2 * m->count ? m->states / 2 : m->temporaries].bytes;
}

int sl_continue_optimizer(struct sl_db *db, struct sl_tape *tape, const struct sl_goal *goal, const struct sl_cut *cut,
                          struct sl_continuation *out, struct sl_error *error) {
  struct making m = {.tape = tape};
  struct sl_cut here = *cut;
  struct sl_allocator_config config;
  sl_allocator_config_parse(tape->config, &config);
  int r = parameters_read(db, goal, &m, error);
  m.made_temporaries = r == 0 ? reallocarray(NULL, m.count + 1, sizeof *m.made_temporaries) : NULL;
  if (r == 0 && !m.made_temporaries)
    r = -ENOMEM;
  if (r == 0 && is_in_order(&m, cut->event) && sl_allocator_round(&config, next_bytes(&m)) == goal->refused_bytes)
    r = rest_make(&m, &here);
  if (r > 0)
    out->rest = SL_REST_optimizer;
  free(m.parameters);
  free(m.made_temporaries);
  return r;
}

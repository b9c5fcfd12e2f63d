/* Finds when autograd adds a gradient to its parameter's, at the earliest and at the latest. */
#include "gradient_turn.h"

#include "staging.h"

#include <string.h>

static const struct sl_tape_event *event_at(const struct sl_gradient_place *p, size_t i) {
  return &p->tape->events[p->events[i]];
}

static const struct sl_tape_allocation *allocation_at(const struct sl_gradient_place *p, size_t i) {
  return &p->tape->allocations[event_at(p, i)->index];
}

static bool is_phase(const struct sl_gradient_place *p, const struct sl_tape_allocation *a, const char *word) {
  return sl_tape_is(&p->tape->phases, a->phase, word);
}

static bool is_gradient(const struct sl_gradient_place *p, const struct sl_tape_allocation *a) {
  return sl_tape_is(&p->tape->categories, a->category, "gradient") ||
         (p->unsharded_too && sl_tape_is(&p->tape->categories, a->category, "unsharded_grad"));
}

static bool is_alloc(const struct sl_gradient_place *p, size_t i) {
  return event_at(p, i)->kind == SL_TAPE_alloc;
}

static bool is_free(const struct sl_gradient_place *p, size_t i) {
  return event_at(p, i)->kind == SL_TAPE_free;
}

/* What is recomputed is let go of within operators, too. */
static bool is_saved_free(const struct sl_gradient_place *p, size_t i) {
  return is_free(p, i) && is_phase(p, allocation_at(p, i), "forward");
}

static size_t saved_free_after(const struct sl_gradient_place *p, size_t i) {
  do
    i++;
  while (i < p->count && !is_saved_free(p, i));
  return i;
}

static size_t alloc_from(const struct sl_gradient_place *p, size_t i) {
  while (i < p->count && !is_alloc(p, i))
    i++;
  return i;
}

/* ---- at the earliest ---- */

/* Of one module, as head.weight and head.bias. */
static bool is_of_module(const struct sl_gradient_place *p, size_t one, size_t other) {
  const uint32_t a = allocation_at(p, one)->parameter, b = allocation_at(p, other)->parameter;
  if (!a || !b)
    return false;
  const char *const *names = (const char *const *)p->tape->parameters.items;
  const char *left = names[a - 1], *right = names[b - 1], *dot = strrchr(left, '.'), *other_dot = strrchr(right, '.');
  return dot && other_dot && dot - left == other_dot - right && memcmp(left, right, (size_t)(dot - left)) == 0;
}

/* The event after a free, which mostly is complete at once. */
static size_t after_free(const struct sl_gradient_place *p, size_t i) {
  return i + 1 < p->count && event_at(p, i + 1)->index == event_at(p, i)->index ? i + 2 : i + 1;
}

static size_t freed_after(const struct sl_gradient_place *p, size_t made) {
  size_t i = made;
  while (i + 1 < p->count && !(is_free(p, i) && event_at(p, i)->index == event_at(p, made)->index))
    i++;
  return after_free(p, i);
}

/* The event after what the operator that makes this gradient goes on with at once. */
static size_t goes_on_until(const struct sl_gradient_place *p, size_t made) {
  size_t i = made + 1;
  while (i < p->count && is_alloc(p, i)) {
    if (sl_tape_is(&p->tape->categories, allocation_at(p, i)->category, "workspace") || is_of_module(p, made, i))
      i++;
    else if (sl_is_staging(p->tape, event_at(p, i)->index))
      return freed_after(p, i);
    else
      break;
  }
  return i;
}

/*
 * Whether the operator of backward that lets go of something saved there has made a gradient: it used what was saved,
 * and since then, or since the gradient, nothing was made that outlives it but gradients.
 */
static bool is_its_operator(const struct sl_gradient_place *p, size_t made, size_t freed) {
  const uint32_t saved = event_at(p, freed)->index;
  const uint64_t used_ns = saved < p->tape->recorded_count ? p->uses[saved].last_ns : 0;
  if (!used_ns || used_ns > event_at(p, freed)->ns || !is_phase(p, allocation_at(p, made), "backward"))
    return false;
  for (size_t i = freed; i-- > 0 && (i > made || event_at(p, i)->ns > used_ns);) {
    const struct sl_tape_allocation *a = allocation_at(p, i);
    if (is_alloc(p, i) && !is_gradient(p, a) && (!a->free_event || a->free_event > event_at(p, freed)->number))
      return false;
  }
  return true;
}

size_t sl_gradient_turn_early(const struct sl_gradient_place *p, size_t made) {
  const size_t until = goes_on_until(p, made), freed = saved_free_after(p, made);
  return freed >= until && freed < p->count && is_its_operator(p, made, freed) ? after_free(p, freed) : until;
}

/* ---- at the latest ---- */

/* Whether an operator has ended while something lived that was made and freed there. */
static bool is_over_operators(const struct sl_gradient_place *p, size_t made, size_t freed) {
  size_t ended = made; /* an operator's end before it */
  while (ended > 0 && !is_saved_free(p, ended))
    ended--;
  const uint64_t ended_number = is_saved_free(p, ended) ? event_at(p, ended)->number : 0;
  size_t last = freed; /* the last allocation while it lived */
  while (last > made && !is_alloc(p, last))
    last--;
  for (size_t i = made + 1; i < last; i++)
    if (is_free(p, i) && (is_saved_free(p, i) || (event_at(p, i)->index < p->tape->recorded_count &&
                                                  allocation_at(p, i)->alloc_event < ended_number)))
      return true;
  return false;
}

/* With nothing else made or freed meanwhile. */
static bool is_surely_staging(const struct sl_gradient_place *p, uint32_t index) {
  const struct sl_tape_allocation *a = &p->tape->allocations[index], *b = a + 1;
  return sl_is_staging(p->tape, index) && b->alloc_event == a->alloc_event + 1 && b->free_event == b->alloc_event + 1 &&
         a->free_event == b->free_event + 2;
}

/* Whether what is freed there may have been another part of the gradient. */
static bool is_part(const struct sl_gradient_place *p, size_t made, size_t freed) {
  const struct sl_tape_allocation *gradient = allocation_at(p, made), *a = allocation_at(p, freed);
  if (!is_free(p, freed) || a->requested != gradient->requested || !is_phase(p, a, "backward"))
    return false;
  size_t i = freed;
  while (i > made && !(is_alloc(p, i) && event_at(p, i)->index == event_at(p, freed)->index))
    i--;
  return i > made && !is_surely_staging(p, event_at(p, freed)->index) && !is_over_operators(p, i, freed);
}

size_t sl_gradient_turn_late(const struct sl_gradient_place *p, size_t made) {
  const size_t saved = saved_free_after(p, made);
  size_t end = alloc_from(p, saved < p->count ? saved : p->count);
  for (size_t i = made + 1; i < p->count; i++)
    if (i >= end && is_part(p, made, i))
      end = alloc_from(p, i);
  return end;
}

void sl_gradient_turn_doubt(struct sl_tape *tape) {
  static const char why[] =
      "code that torch.compile made lets go of tensors within one operator, so when autograd adds "
      "gradients is not known";
  if (tape->is_compiled && !strstr(tape->doubt, why))
    sl_tape_doubt(tape, "%s", why);
}

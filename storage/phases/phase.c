/* What can be told of a phase from those around it. */
#include "phase.h"

uint32_t sl_phase_module(const struct sl_phase *phase) {
  for (; phase; phase = phase->parent)
    if (phase->module)
      return phase->module;
  return 0;
}

struct sl_phase *sl_phase_enclosing(struct sl_phase *phase, enum sl_kind kind) {
  for (; phase; phase = phase->parent)
    if (phase->kind == kind)
      return phase;
  return NULL;
}

const struct sl_phase *sl_phase_enclosing_point(const struct sl_phase *phase, enum sl_phase_point point) {
  for (; phase; phase = phase->parent)
    if (phase->point == point)
      return phase;
  return NULL;
}

const char *sl_kind_name(enum sl_kind kind) {
  switch (kind) {
#define KIND(number, name, meaning)                                                                                    \
  case SL_KIND_##name:                                                                                                 \
    return #name;
#include "nvtx_ranges/kinds.def"
#undef KIND
  default: return "none";
  }
}

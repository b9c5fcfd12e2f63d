/* allocator_site and allocator_note events come right before the allocator event that they are of, under the same lock.
 */
#include "rank_sites.h"

#include "storage/rules/user_rules.h"

#include <errno.h>

int sl_rank_sites_init(struct sl_rank_sites *sites, const struct sl_log *log, const struct sl_user_rules *rules) {
  sites->log = log;
  sites->rules = rules;
  sites->known = sl_sites_new(log);
  sites->places = sl_site_places_new();
  return sites->known && sites->places ? 0 : -ENOMEM;
}

void sl_rank_sites_free(struct sl_rank_sites *sites) {
  sites->known = sl_sites_free(sites->known);
  sites->places = sl_site_places_free(sites->places);
}

int sl_rank_sites_event(struct sl_rank_sites *sites, const struct sl_event *event, struct sl_error *error) {
  const struct sl_event_allocator_site *e = event->payload;
  const struct sl_event_allocator_note *noted = event->payload;
  switch (event->type) {
  case SL_EVENT_frame: return sl_sites_frame(sites->known, event->payload, error);
  case SL_EVENT_site: sites->any = true; return sl_sites_site(sites->known, event->payload, error);
  case SL_EVENT_allocator_site:
    if (e->device < SL_DEVICES_MAX) {
      sites->next[e->device].sequence = e->sequence;
      sites->next[e->device].site = sl_sites_known(sites->known, e->site);
    }
    return 0;
  case SL_EVENT_allocator_note:
    if (noted->device < SL_DEVICES_MAX) {
      sites->next[noted->device].noted = noted->sequence;
      sites->next[noted->device].note = noted->note;
    }
    return 0;
  default: return 0;
  }
}

/* One note is mostly of many allocations in a row. */
static void allocation_note(struct sl_rank_sites *sites, struct sl_allocation *a) {
  const uint32_t note = sites->next[a->device].note;
  if (!note || sites->next[a->device].noted != a->sequence)
    return;
  sites->next[a->device].note = 0;
  a->note = sl_log_string(sites->log, note);
  if (note != sites->last_note)
    sites->last_rule = sl_user_rule_find(sites->rules, SL_USER_RULE_note_category, a->note, NULL);
  sites->last_note = note;
  a->note_rule = sites->last_rule;
}

void sl_rank_sites_allocation(struct sl_rank_sites *sites, struct sl_allocation *a, struct sl_phase *phase) {
  uint32_t own = 0;
  allocation_note(sites, a);
  a->site_step = -1;
  if (!sites->any)
    return;
  if (sites->next[a->device].site && sites->next[a->device].sequence == a->sequence)
    own = sites->next[a->device].site;
  sites->next[a->device].site = 0;
  a->site = own;
  if (a->step < 0 || !phase)
    return;
  const struct sl_place_site of =
      sl_site_places_site(sites->places, phase, phase->allocations++, a->requested_bytes, a->step, own);
  a->site = of.site;
  a->step_place = of.place;
  if (!own && of.site)
    a->site_step = of.step;
}

void sl_rank_sites_existing(struct sl_rank_sites *sites, struct sl_allocation *a, uint32_t site) {
  a->site = sl_sites_known(sites->known, site);
  a->site_step = -1;
}

int sl_rank_sites_write(const struct sl_rank_sites *sites, struct sl_ledger_writer *writer, struct sl_error *error) {
  return sl_site_places_lack_memory(sites->places) ? sl_no_memory(error) : sl_sites_write(sites->known, writer, error);
}

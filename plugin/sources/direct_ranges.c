/*
 * Ranges that come without NVTX. A process has one NVTX tool; where that is another one (Nsight Systems,
 * compute-sanitizer), it keeps the ranges of all libraries, and the companion hands its own on here too. They are
 * recorded as if NVTX had brought them.
 */
#include "plugin/log/event_log.h"
#include "plugin/shardledger.h"
#include "source_nvtx.h"

#include "nvtx_ranges/kinds.h"

#include <stdatomic.h>

static uint16_t companions_domain(void) {
  static _Atomic uint16_t made;
  uint16_t domain = atomic_load_explicit(&made, memory_order_acquire);
  if (domain)
    return domain;
  domain = sl_nvtx_domain_named(sl_log_name(SL_NVTX_DOMAIN));
  atomic_store_explicit(&made, domain, memory_order_release); /* made twice by two threads it is the same */
  return domain;
}

static struct sl_nvtx_range range_of(uint32_t kind, const char *name, uint64_t value) {
  return (struct sl_nvtx_range){.name = sl_log_name(name),
                                .domain = companions_domain(),
                                .category = kind <= UINT16_MAX ? (uint16_t)kind : 0,
                                .value = value};
}

int sl_ranges_wanted(const void *nvtx_domain) {
  if (sl_nvtx_domain((nvtxDomainHandle_t)(uintptr_t)nvtx_domain) != 0)
    return 0;
  sl_source_state("nvtx", "on",
                  nvtx_domain ? "another NVTX tool has the ranges of all libraries; the companion's are recorded too"
                              : "NVTX gave no domain, so it has no tool, or one that takes no domains; the companion's "
                                "ranges come without it");
  return 1;
}

void sl_range_push(uint32_t kind, const char *name, uint64_t value) {
  struct sl_nvtx_range range = range_of(kind, name, value);
  sl_nvtx_push(&range);
}

void sl_range_pop(void) {
  sl_nvtx_pop(companions_domain(), NULL);
}

uint64_t sl_range_start(uint32_t kind, const char *name, uint64_t value) {
  struct sl_nvtx_range range = range_of(kind, name, value);
  return sl_nvtx_start(&range);
}

void sl_range_end(uint64_t id) {
  sl_nvtx_end(id);
}

void sl_range_mark(uint32_t kind, const char *name, uint64_t value) {
  struct sl_nvtx_range range = range_of(kind, name, value);
  sl_nvtx_mark(&range);
}

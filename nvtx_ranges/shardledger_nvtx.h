/*
 * ShardLedger's ranges from native code, as NVTX: they show in the ledger, and in Nsight Systems without it.
 * Header only; C99 and C++11; needs the NVTX 3 headers (nvtx3/nvToolsExt.h) and kinds.def beside this file.
 *
 *   #include "shardledger_nvtx.h"
 *
 *   sl_nvtx_push(SL_KIND_checkpoint, "save", step);       // nests on this thread
 *   write_checkpoint();
 *   sl_nvtx_pop();
 *
 *   uint64_t id = sl_nvtx_start(SL_KIND_user, "prefetch", 0); // may end on another thread, need not nest
 *   …
 *   sl_nvtx_end(id);
 *
 *   { shardledger::range r(SL_KIND_user, "sampling"); sample(); }   // C++: ends with the scope
 *
 * category is an enum sl_kind; value is what kinds.def says of that kind: a module id, a step number, or 0.
 * Names are copied by the tool before the call returns. Without a tool each call costs about a nanosecond.
 */
#ifndef SHARDLEDGER_NVTX_H
#define SHARDLEDGER_NVTX_H

#include "kinds.h"

#include <nvtx3/nvToolsExt.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Everything below is static: NVTX keeps its own state per shared object, and so does this header per source file. */

static inline void sl_nvtx_name_categories(nvtxDomainHandle_t domain) {
#define KIND(number, name, meaning) nvtxDomainNameCategoryA(domain, number, #name);
#include "kinds.def"
#undef KIND
}

/*
 * The domain "shardledger", made by the first call. Others, such as another source file, may make it too: it is one.
 * NULL without a tool, and then every call below returns at once.
 */
static inline nvtxDomainHandle_t sl_nvtx_domain(void) {
  static nvtxDomainHandle_t domain;
  static int made;
  if (__builtin_expect(!__atomic_load_n(&made, __ATOMIC_ACQUIRE), 0)) {
    nvtxDomainHandle_t created = nvtxDomainCreateA(SL_NVTX_DOMAIN);
    if (created)
      sl_nvtx_name_categories(created);
    __atomic_store_n(&domain, created, __ATOMIC_RELAXED);
    __atomic_store_n(&made, 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&domain, __ATOMIC_RELAXED);
}

static inline nvtxEventAttributes_t sl_nvtx_attributes(uint32_t category, const char *name, uint64_t value) {
  nvtxEventAttributes_t attributes;
  memset(&attributes, 0, sizeof attributes);
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = category;
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = value;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name ? name : "";
  return attributes;
}

static inline void sl_nvtx_push(uint32_t category, const char *name, uint64_t value) {
  nvtxDomainHandle_t domain = sl_nvtx_domain();
  if (domain) {
    nvtxEventAttributes_t attributes = sl_nvtx_attributes(category, name, value);
    nvtxDomainRangePushEx(domain, &attributes);
  }
}

static inline void sl_nvtx_pop(void) {
  nvtxDomainHandle_t domain = sl_nvtx_domain();
  if (domain)
    nvtxDomainRangePop(domain);
}

/* Returns an id for sl_nvtx_end; 0, which sl_nvtx_end ignores, without a tool. */
static inline uint64_t sl_nvtx_start(uint32_t category, const char *name, uint64_t value) {
  nvtxDomainHandle_t domain = sl_nvtx_domain();
  if (!domain)
    return 0;
  nvtxEventAttributes_t attributes = sl_nvtx_attributes(category, name, value);
  return nvtxDomainRangeStartEx(domain, &attributes);
}

static inline void sl_nvtx_end(uint64_t id) {
  nvtxDomainHandle_t domain = sl_nvtx_domain();
  if (domain && id)
    nvtxDomainRangeEnd(domain, id);
}

static inline void sl_nvtx_mark(uint32_t category, const char *name, uint64_t value) {
  nvtxDomainHandle_t domain = sl_nvtx_domain();
  if (domain) {
    nvtxEventAttributes_t attributes = sl_nvtx_attributes(category, name, value);
    nvtxDomainMarkEx(domain, &attributes);
  }
}

#ifdef __cplusplus
} /* extern "C" */

namespace shardledger {

/* A push/pop range that lasts as long as the object. */
class range {
public:
  range(sl_kind kind, const char *name, uint64_t value = 0) {
    sl_nvtx_push(kind, name, value);
  }
  ~range() {
    sl_nvtx_pop();
  }
  range(const range &) = delete;
  range &operator=(const range &) = delete;
};

} // namespace shardledger
#endif

#endif

/*
 * libshardledger_nvtx.so: shardledger_nvtx.h behind plain functions, for callers that can't include a header (Python
 * through ctypes) or must share one NVTX instance (the torch bridge, through function pointers). It is a library of its
 * own and not part of libshardledger.so because NVTX must not be initialised by the tool that it initialises.
 */
#include "shardledger_nvtx.h"

#define SLR_API __attribute__((visibility("default")))

/* 1 when an NVTX tool listens, libshardledger.so or another; the first call initialises NVTX. */
SLR_API int slr_attached(void) {
  return sl_nvtx_domain() != NULL;
}

SLR_API void slr_push(uint32_t category, const char *name, uint64_t value) {
  sl_nvtx_push(category, name, value);
}

SLR_API void slr_pop(void) {
  sl_nvtx_pop();
}

SLR_API uint64_t slr_start(uint32_t category, const char *name, uint64_t value) {
  return sl_nvtx_start(category, name, value);
}

SLR_API void slr_end(uint64_t id) {
  sl_nvtx_end(id);
}

SLR_API void slr_mark(uint32_t category, const char *name, uint64_t value) {
  sl_nvtx_mark(category, name, value);
}

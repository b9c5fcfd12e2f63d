/*
 * libshardledger_nvtx.so: shardledger_nvtx.h behind plain functions. The companion reads the declarations from this
 * file, the torch bridge includes it.
 */
#ifndef SHARDLEDGER_RANGES_H
#define SHARDLEDGER_RANGES_H

#include "shardledger.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SLR_API __attribute__((visibility("default")))

/* 1 when an NVTX tool listens, libshardledger.so or another; the first call initialises NVTX. */
SLR_API int slr_attached(void);

/* NVTX's handle of the domain, NULL without a tool. */
SLR_API const void *slr_domain(void);

/* sl_option for processes without libshardledger.so, such as those that Nsight Systems alone records. */
SLR_API const char *slr_option(const char *name);

/* As the functions sl_range_push … sl_range_mark, for any NVTX tool. */
SLR_API void slr_push(uint32_t kind, const char *name, uint64_t value);
SLR_API void slr_pop(void);
SLR_API uint64_t slr_start(uint32_t kind, const char *name, uint64_t value);
SLR_API void slr_end(uint64_t id);
SLR_API void slr_mark(uint32_t kind, const char *name, uint64_t value);

/* Where NVTX has another tool than libshardledger.so: every range goes to these functions of it as well. Once. */
typedef __typeof__(sl_range_push) slr_push_fn;
typedef __typeof__(sl_range_pop) slr_pop_fn;
typedef __typeof__(sl_range_start) slr_start_fn;
typedef __typeof__(sl_range_end) slr_end_fn;
typedef __typeof__(sl_range_mark) slr_mark_fn;
SLR_API void slr_hand_on(slr_push_fn *push, slr_pop_fn *pop, slr_start_fn *start, slr_end_fn *end, slr_mark_fn *mark);

#ifdef __cplusplus
}
#endif

#endif

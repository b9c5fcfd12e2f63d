/*
 * A shared object with its own copy of NVTX, as libtorch and libnccl have one. Built twice, as alpha and beta, so that
 * a program has two copies. The table leads to that copy's functions.
 */
#ifndef SHARDLEDGER_TESTS_NVTX_LIBRARY_H
#define SHARDLEDGER_TESTS_NVTX_LIBRARY_H

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

struct nvtx_library {
#define FUNCTION(name) decltype(&nvtx##name) name;
#define NVTX_LIBRARY_FUNCTIONS                                                                                         \
  FUNCTION(MarkA)                                                                                                      \
  FUNCTION(MarkW)                                                                                                      \
  FUNCTION(MarkEx)                                                                                                     \
  FUNCTION(RangePushA)                                                                                                 \
  FUNCTION(RangePushW)                                                                                                 \
  FUNCTION(RangePushEx)                                                                                                \
  FUNCTION(RangePop)                                                                                                   \
  FUNCTION(RangeStartA)                                                                                                \
  FUNCTION(RangeStartW)                                                                                                \
  FUNCTION(RangeStartEx)                                                                                               \
  FUNCTION(RangeEnd)                                                                                                   \
  FUNCTION(DomainMarkEx)                                                                                               \
  FUNCTION(DomainRangePushEx)                                                                                          \
  FUNCTION(DomainRangePop)                                                                                             \
  FUNCTION(DomainRangeStartEx)                                                                                         \
  FUNCTION(DomainRangeEnd)                                                                                             \
  FUNCTION(DomainRegisterStringA)                                                                                      \
  FUNCTION(DomainRegisterStringW)                                                                                      \
  FUNCTION(DomainCreateA)                                                                                              \
  FUNCTION(DomainCreateW)                                                                                              \
  FUNCTION(DomainDestroy)                                                                                              \
  FUNCTION(DomainResourceCreate)                                                                                       \
  FUNCTION(DomainResourceDestroy)                                                                                      \
  FUNCTION(Initialize)                                                                                                 \
  FUNCTION(PayloadSchemaRegister)                                                                                      \
  FUNCTION(PayloadEnumRegister)                                                                                        \
  FUNCTION(MarkPayload)                                                                                                \
  FUNCTION(RangePushPayload)                                                                                           \
  FUNCTION(RangePopPayload)                                                                                            \
  FUNCTION(RangeStartPayload)                                                                                          \
  FUNCTION(RangeEndPayload)                                                                                            \
  FUNCTION(DomainIsEnabled)
  NVTX_LIBRARY_FUNCTIONS
#undef FUNCTION

  /* A range with a struct for a payload, by NVTX's own helper macros; returns the schema's id. */
  uint64_t (*PushWithHelpers)(nvtxDomainHandle_t domain, uint32_t count, uint64_t bytes);
};

#endif

/*
 * CUPTI, looked up at run time: the copy that is already in the process, so that it is shared with PyTorch, else one
 * found beside the CUDA libraries. Never linked, never closed (closing it crashed), never finalized.
 */
#ifndef SHARDLEDGER_CUPTI_LOADER_H
#define SHARDLEDGER_CUPTI_LOADER_H

#include <cupti.h>

/* Functions without which a library is not usable, then those that not every version has. */
#define SL_CUPTI_FUNCTIONS(REQUIRED, OPTIONAL)                                                                         \
  REQUIRED(GetVersion)                                                                                                 \
  REQUIRED(GetResultString)                                                                                            \
  REQUIRED(GetContextId)                                                                                               \
  REQUIRED(GetDeviceId)                                                                                                \
  REQUIRED(Subscribe)                                                                                                  \
  REQUIRED(Unsubscribe)                                                                                                \
  REQUIRED(EnableCallback)                                                                                             \
  REQUIRED(ActivityRegisterCallbacks)                                                                                  \
  REQUIRED(ActivityEnable)                                                                                             \
  REQUIRED(ActivityDisable)                                                                                            \
  REQUIRED(ActivityFlushAll)                                                                                           \
  REQUIRED(ActivityGetNextRecord)                                                                                      \
  REQUIRED(ActivityGetNumDroppedRecords)                                                                               \
  REQUIRED(ActivitySetAttribute)                                                                                       \
  OPTIONAL(GetTimestamp)

/* What cuptiSubscribe_v2 takes and tells, as CUPTI 13 lays it out; spelled out because older headers lack it. */
struct sl_cupti_subscriber {
  size_t size; /* of this struct */
  const char *name;
  char *holder; /* out: the name of the subscriber that has the seat */
  size_t holder_size;
};

struct sl_cupti {
  uint32_t version; /* cuptiGetVersion: 18 … 28 are CUDA 12, 130000 and above CUDA 13 */
#define FUNCTION(name) __typeof__(cupti##name) *name;
  SL_CUPTI_FUNCTIONS(FUNCTION, FUNCTION)
#undef FUNCTION
  CUptiResult (*Subscribe_v2)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *, struct sl_cupti_subscriber *);
};

/*
 * The library's functions, looked up at the first call (not from inside a callback: it loads a library). NULL without
 * a usable CUPTI. Owned by the loader and valid for the rest of the process.
 */
const struct sl_cupti *sl_cupti_load(void);

/* CUPTI's words for a result, for people. Never NULL, owned by CUPTI. */
const char *sl_cupti_result(const struct sl_cupti *cupti, CUptiResult result);

#endif

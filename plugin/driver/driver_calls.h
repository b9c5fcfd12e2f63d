/*
 * The driver calls that allocate or free memory, as data: which callback, and where its parameters are.
 *
 * One table (driver_calls.c) stands for all handlers. Parameters are read through the structs of CUPTI's
 * generated_cuda_meta.h, so that widths and offsets are the compiler's, not ours.
 */
#ifndef SHARDLEDGER_DRIVER_CALLS_H
#define SHARDLEDGER_DRIVER_CALLS_H

#include "plugin/format/events.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_driver_effect {
  SL_DRIVER_ALLOCATES, /* memory, or a mapping of it, comes into being */
  SL_DRIVER_FREES,
  SL_DRIVER_IMPORTS, /* a handle to another process's memory: nothing is allocated, but a later mapping is not ours */
};

/* Where a parameter is: its offset in the call's struct and its width; width 0 when the call has no such parameter. */
struct sl_driver_parameter {
  uint16_t offset;
  uint8_t width;
  bool out; /* the struct holds a pointer to it */
};

/* One physical allocation's place, where the call says it. */
struct sl_driver_place {
  uint32_t device; /* CUDA device index */
  uint8_t kind;    /* enum sl_memory_kind */
};

struct sl_driver_call {
  uint32_t cbid;
  const char *name; /* of the function: cuMemAlloc_v2 */
  uint8_t effect;   /* enum sl_driver_effect */
  uint8_t kind;     /* enum sl_memory_kind; SL_MEMORY_UNKNOWN for what occupies no memory of its own, such as handles */
  struct sl_driver_parameter address;
  struct sl_driver_parameter bytes;
  struct sl_driver_parameter stream;
  struct sl_driver_parameter handle;                   /* of the physical memory, for mappings */
  uint64_t (*size)(const void *parameters, bool done); /* where the bytes are not one parameter; may be NULL */
  bool (*place)(const void *parameters, struct sl_driver_place *); /* may be NULL; false: the call does not say */
};

extern const struct sl_driver_call sl_driver_calls[];
extern const size_t sl_driver_call_count;

/* The entry of a callback id, or NULL. */
const struct sl_driver_call *sl_driver_call_find(uint32_t cbid);

/* A parameter's value; 0 when the call has none, and for outputs whose pointer is NULL. */
uint64_t sl_driver_parameter_read(const void *parameters, struct sl_driver_parameter parameter);

#endif

/*
 * The event log's record types as C: one struct and one enum value for each entry of events.def.
 * Shared by the plugin (writes), storage/ (reads) and the tests.
 */
#ifndef SHARDLEDGER_EVENTS_H
#define SHARDLEDGER_EVENTS_H

#include <stdint.h>

/* Devices of one process that are recorded and read: numbers from 0; more than any host has. */
#define SL_DEVICES_MAX 64

/* What one entry of PyTorch's allocator trace says; see c10/core/CachingDeviceAllocator.h. */
enum sl_allocator_action {
  SL_ALLOC = 1,              /* a block was handed out */
  SL_FREE_REQUESTED = 2,     /* the tensor died: allocated bytes fall */
  SL_FREE_COMPLETED = 3,     /* no stream uses the block any more: active bytes fall */
  SL_SEGMENT_ALLOC = 4,      /* a segment came from the driver */
  SL_SEGMENT_FREE = 5,       /* and went back */
  SL_SEGMENT_MAP = 6,        /* expandable segments: a range was mapped */
  SL_SEGMENT_UNMAP = 7,      /* and unmapped */
  SL_ALLOCATOR_SNAPSHOT = 8, /* somebody took a snapshot; moves no bytes */
  SL_OUT_OF_MEMORY = 9,      /* a request failed for good */
  SL_ALLOCATOR_OTHER = 10,   /* newer entries (annotations); move no bytes */
};

/* Whose Python call stack a site has. */
enum sl_stack_of {
  SL_STACK_OF_CALLER = 0,  /* of the code that asked for the memory */
  SL_STACK_OF_FORWARD = 1, /* of the forward operator, of whose backward one it is */
  SL_STACK_OF_WAITING = 2, /* of the main thread, which waits for a thread without a stack: for backward, say */
};

/* What is known of uses. A kernel that no operator launched may use any memory: compiled code's, an extension's. */
enum sl_uses {
  SL_USES_OFF = 0,      /* no use is told from here on */
  SL_USES_FOLLOWED = 1, /* operators' are, and so is each kernel that no operator launches */
  SL_USES_PARTLY = 2,   /* operators' are, but not what else launches kernels */
  SL_USES_HIDDEN = 3,   /* a kernel was launched here that no operator launched */
};

/* What a kept_calls event counts. */
enum sl_calls_kind { SL_CALLS_collectives = 0, SL_CALLS_sends = 1, SL_CALLS_receives = 2 };

/* How a device_sample was taken. NVML's are in no step with what else is recorded: calls may be under way. */
enum sl_sampled_by { SL_SAMPLED_BY_DRIVER = 0, SL_SAMPLED_BY_NVML = 1 };

/* Of one block of PyTorch's allocator. */
enum sl_block_state {
  SL_BLOCK_FREE = 0,
  SL_BLOCK_ALLOCATED = 1,
  SL_BLOCK_PENDING = 2, /* freed, but another stream may still use it */
};

/* Where driver-level memory lives; the values of CUpti_ActivityMemoryKind, so that records convert without a table. */
enum sl_memory_kind {
  SL_MEMORY_UNKNOWN = 0,
  SL_MEMORY_PAGEABLE = 1,
  SL_MEMORY_PINNED = 2,
  SL_MEMORY_DEVICE = 3,
  SL_MEMORY_ARRAY = 4,
  SL_MEMORY_MANAGED = 5,
  SL_MEMORY_DEVICE_STATIC = 6,
  SL_MEMORY_MANAGED_STATIC = 7,
};

enum sl_module_flags {
  SL_MODULE_FSDP = 1,      /* an FSDP unit: it gathers and reshards its own parameters */
  SL_MODULE_ROOT = 2,      /* called from outside any other module */
  SL_MODULE_RECOMPUTE = 4, /* wrapped in activation checkpointing */
  SL_MODULE_DDP = 8,       /* wrapped in DistributedDataParallel */
};

enum sl_parameter_flags {
  SL_PARAMETER_TRAINED = 1,   /* requires_grad */
  SL_PARAMETER_OFFLOADED = 2, /* in the host's memory */
};

enum sl_fsdp_unit_flags {
  SL_UNIT_OFFLOADED = 1, /* CPUOffloadPolicy: parameters, gradients and optimizer state are in the host's memory */
};

#define EVENT_BEGIN(number, name, meaning) struct sl_event_##name {
#define FIELD(type, name, kind, meaning) type name;
#define TAIL(length_field, kind, meaning)
#define EVENT_END(name)                                                                                                \
  }                                                                                                                    \
  ;
#include "events.def"
#undef EVENT_BEGIN
#undef FIELD
#undef TAIL
#undef EVENT_END

enum sl_event_type {
#define EVENT_BEGIN(number, name, meaning) SL_EVENT_##name = number,
#define FIELD(type, name, kind, meaning)
#define TAIL(length_field, kind, meaning)
#define EVENT_END(name)
#include "events.def"
#undef EVENT_BEGIN
#undef FIELD
#undef TAIL
#undef EVENT_END
};

#endif

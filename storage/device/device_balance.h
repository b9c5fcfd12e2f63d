/*
 * Who holds what of a device, at every sample of it: PyTorch's allocations and its cache, NCCL, cuBLAS, other
 * libraries, the CUDA context, GPU code, other processes; and the rest, which nobody explains.
 *
 * The driver tells the context's and the code's size to nobody, so they are measured: what is in use beyond all
 * recorded allocations at the first sample is the context; what it grows by while GPU code was loaded is that code. A
 * sample before any code is loaded (the plugin takes one at the allocator's first segment) keeps the two apart.
 */
#ifndef SHARDLEDGER_DEVICE_BALANCE_H
#define SHARDLEDGER_DEVICE_BALANCE_H

#include "driver_segments.h"

struct sl_device_balance;

/* Of PyTorch's caching allocator on the sampled device. */
struct sl_allocator_memory {
  struct sl_block_totals all;     /* as torch.cuda.memory_stats has them */
  struct sl_block_totals private; /* of these, in private pools: CUDA graphs and MemPools */
};

/* Bytes of the live allocations at a position that PyTorch made for cuBLAS, in the shared pool. Positions go up. */
typedef uint64_t sl_workspace_bytes(void *context, uint32_t device, uint64_t at);

/* writer and segments must outlive it. NULL: no memory. */
struct sl_device_balance *sl_device_balance_new(struct sl_ledger_writer *writer,
                                                const struct sl_driver_segments *segments);
struct sl_device_balance *sl_device_balance_free(struct sl_device_balance *balance); /* returns NULL */

/* Recording began in the middle: code may have been loaded that nobody saw. */
void sl_device_balance_late(struct sl_device_balance *balance, uint32_t device);

/* gpu_module, process_memory: others are ignored. */
void sl_device_balance_event(struct sl_device_balance *balance, const struct sl_event *event);

/*
 * What is in use at a position and instant. One that NVML told is in no step with the recorded calls, so that what is
 * unexplained, or code, may be off by those that were under way: it says nothing about the samples that follow.
 */
struct sl_device_use {
  uint32_t device;
  bool by_nvml;
  uint64_t at, at_ns, total_bytes, used_bytes;
};

/* 0 or -ENOMEM. */
int sl_device_balance_sample(struct sl_device_balance *balance, const struct sl_device_use *use,
                             const struct sl_allocator_memory *allocator, struct sl_error *error);

/* Writes the samples since the last call: once the categories of what was alive then are decided. */
int sl_device_balance_settle(struct sl_device_balance *balance, sl_workspace_bytes *workspaces, void *context,
                             struct sl_error *error);

#endif

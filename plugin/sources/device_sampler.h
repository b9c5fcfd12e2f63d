/*
 * Samples of the devices by NVML, once a second, on a thread of its own: NVML may hang, and then neither the job nor
 * the log may wait for it. No CUDA context is touched, so it works beside any program, with steps or without.
 *
 *   helper thread: tick ──► word: asked ──► sampling thread: NVML ──► process_memory, device_sample
 *
 * A tick that comes while the answer to the one before is still out is left out.
 */
#ifndef SHARDLEDGER_DEVICE_SAMPLER_H
#define SHARDLEDGER_DEVICE_SAMPLER_H

#include <stdint.h>

/* Looks NVML up, without a call into it. Where it is loaded is for the caller to say: dlopen is no matter for a thread
 * beside a program that may fork. */
void sl_device_sampler_load(void);

/* From now on this device is sampled. No lock, no system call; any thread, any number of times. */
void sl_device_sampler_add(uint32_t device);

/* Asks for a sample of each device; on the helper thread. */
void sl_device_sampler_tick(void);

/*
 * No sample is begun any more; waits for one that is under way, a tenth of a second at most. On the helper thread. What
 * hangs in NVML for longer ends with the process.
 */
void sl_device_sampler_stop(void);

#endif

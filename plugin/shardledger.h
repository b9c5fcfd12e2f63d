/*
 * Public C API of libshardledger.so: how code inside the training process adds facts to the event log.
 *
 * The torch bridge and the Python companion use it; so may native code. Every function may be called from any thread
 * at any time, never blocks on a lock that another source holds, never calls CUDA or Python (sl_device_sample, the
 * sl_cupti functions and a device's first segment excepted, which say so), and does nothing when recording is off.
 * Nothing here fails loudly: what can't be recorded is counted in the log.
 *
 * Phases are NVTX ranges: emit them with nvtx_ranges/shardledger_nvtx.h. The range functions here are for the
 * companion, where NVTX has another tool.
 */
#ifndef SHARDLEDGER_H
#define SHARDLEDGER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * This file is the one list of the interface. What it marks SL_API is what the library exports; the companion reads its
 * declarations from here, so each stands on lines of its own and takes numbers, texts and addresses only.
 * SL_API_WAITS: it may call the CUDA driver or wait, so the companion gives Python's lock up meanwhile.
 */
#define SL_API __attribute__((visibility("default")))
#define SL_API_WAITS SL_API

/* Version of this interface; sl_api_version() of the loaded library must equal it. */
#define SL_API_VERSION 8
SL_API uint32_t sl_api_version(void);

/* 1 while events are recorded; 0 when off, paused, failed or in a forked child. */
SL_API int sl_recording(void);

/* Directory of this process's log, NUL-terminated and owned by the library; "" until the first event was recorded. */
SL_API const char *sl_directory(void);

/*
 * Value of an environment option, SHARDLEDGER_…: the environment's at the first question to any option when it is
 * valid, else the default. NULL when there is no option of this name. Owned by the library.
 */
SL_API const char *sl_option(const char *name);

/* Stops and resumes recording of everything (used for paired overhead measurements). A gap record marks the window. */
SL_API void sl_pause(void);
SL_API void sl_resume(void);

/* A fact about the process, such as rank or torch_version. Both strings are copied; a later value replaces an earlier
 * one. */
SL_API void sl_info(const char *key, const char *value);

/* A source outside the plugin started, stopped or failed. State: "on", "off" or "failed". All are copied. */
SL_API void sl_source_state(const char *source, const char *state, const char *reason);

/*
 * Whether the ranges of a caller whose NVTX domain is this one (as nvtxDomainCreate gave it; NULL without a tool) come
 * here by themselves (0), or have to be handed on by the functions below (1), because NVTX has another tool or none.
 * The source nvtx says so then.
 */
SL_API int sl_ranges_wanted(const void *nvtx_domain);

/* Ranges of the domain "shardledger", as in shardledger_nvtx.h; kind: enum sl_kind. Names are copied. */
SL_API void sl_range_push(uint32_t kind, const char *name, uint64_t value);
SL_API void sl_range_pop(void);
SL_API uint64_t sl_range_start(uint32_t kind, const char *name, uint64_t value);
SL_API void sl_range_end(uint64_t id);
SL_API void sl_range_mark(uint32_t kind, const char *name, uint64_t value);

/* One module. id counts from 1 and must be new; strings are copied; flags: enum sl_module_flags in events.h. */
SL_API void sl_module(uint32_t id, uint32_t parent, const char *fqn, const char *class_name, uint32_t flags,
                      uint32_t depth, uint64_t parameter_bytes, uint64_t buffer_bytes);

/*
 * What predictions need to know, as the events of these names in events.def have it: parameters of a model, how a unit
 * of FSDP2 is sharded, and an optimizer's groups. Strings are copied. All take a lock.
 */
SL_API void sl_parameter(uint32_t id, uint32_t module, uint32_t unit, uint32_t place, const char *name,
                         const char *dtype, const char *shape, const char *local_shape, const char *placement,
                         uint32_t flags);
SL_API void sl_fsdp_unit(uint32_t module, uint32_t shard_ranks, uint32_t replicas, uint32_t reshard_ranks,
                         const char *param_dtype, const char *reduce_dtype, uint32_t groups, uint32_t flags);
SL_API void sl_optimizer(uint32_t id, uint32_t group, const char *class_name, const char *settings,
                         const char *parameters, uint32_t count);

/*
 * The live allocation that starts at address (a tensor's storage, not the tensor's own data pointer) is of this
 * category. module: 0 or an id given to sl_module. name: for example the parameter's FQN; "" for none.
 * The category "cublas_workspace" says that the allocation is in PyTorch's table of workspaces for cuBLAS.
 */
SL_API void sl_tag(int device, uint64_t address, const char *category, uint32_t module, const char *name);

/*
 * One entry of PyTorch's allocator trace. Call it from an allocator trace tracker, that is under the device allocator's
 * lock: the call order of one device is the order of the log. action: enum sl_allocator_action in events.h.
 * Some 40 ns (docs/overhead.md); no lock, no system call. At the first SL_SEGMENT_ALLOC or SL_SEGMENT_MAP of each
 * device, when PyTorch has just called the driver under that lock itself, the device's free and total bytes are taken:
 * what a bare context uses.
 */
SL_API void sl_allocator_event(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream,
                               uint64_t pool_owner, uint64_t pool_id);

/*
 * The same for an entry that is read later than it was made: at_ns is its own time, of CLOCK_REALTIME (0: not known).
 * Of all devices the earlier one first. Then what was read is whole up to an instant: sl_allocator_told.
 */
SL_API void sl_allocator_event_at(int device, int action, uint64_t address, uint64_t bytes, uint64_t stream,
                                  uint64_t pool_owner, uint64_t pool_id, uint64_t at_ns);
SL_API void sl_allocator_told(uint64_t until_ns);

/*
 * Where in the code memory is asked for. A frame: one of a Python call stack, called by the frame `caller` (0: none). A
 * site: a call stack, by its innermost frame (0: none), and an operator's name (NULL or "": none); stack_of: enum
 * sl_stack_of in events.h. Ids count from 1 in each, and must be new; strings are copied. Both take a lock, at a new
 * one.
 */
SL_API void sl_frame(uint32_t id, uint32_t caller, const char *file, const char *function, uint32_t line);
SL_API void sl_site(uint32_t id, uint32_t frame, const char *operator_name, int stack_of);

/* The next sl_allocator_event of this device is of this site; called under the same lock. */
SL_API void sl_allocator_site(int device, uint32_t site);

/* The program's own word for what the next sl_allocator_event of this device allocates; likewise. Copied. */
SL_API void sl_allocator_note(int device, const char *note);

/*
 * An operator that ends now on this thread, and began lasted_ns ago, has read or written the allocation at this
 * address, or with address 0 what this thread has allocated since. site: as in sl_site; 0: not known.
 */
SL_API void sl_use(uint64_t address, uint32_t site, uint32_t lasted_ns);

/*
 * From now on sl_use is called for what every operator uses (1), or no more (0). in_operator: whether the calling
 * thread is inside of one: asked, by the driver's callback, at each kernel launch until then; NULL with 0. Calls CUPTI.
 */
SL_API void sl_use_watch(int followed, int (*in_operator)(void));

/* The request that the device's allocator has just refused on this thread came from this site. */
SL_API void sl_refused_site(int device, uint32_t site);

/* Number of sl_allocator_event calls for a device so far, of both kinds. */
SL_API uint32_t sl_allocator_sequence(int device);

/*
 * Where recording began when the allocator of a device already held memory: once a device, sl_allocator_restore, and
 * then each of its blocks, those of a segment in address order. sequence: sl_allocator_sequence under the device
 * allocator's lock at the instant that the blocks are of. state: enum sl_block_state in events.h. Both may be called
 * after that instant, and take a lock of their own.
 */
SL_API void sl_allocator_restore(int device, uint32_t sequence, uint32_t segments, uint32_t blocks);
SL_API void sl_allocator_existing(int device, uint64_t address, uint64_t bytes, uint64_t requested_bytes,
                                  uint64_t stream, uint64_t pool_owner, uint64_t pool_id, int state,
                                  int starts_segment);

/* PyTorch's own current statistics at an instant between allocator events (sequence: sl_allocator_sequence then). */
SL_API void sl_allocator_stats(int device, uint32_t sequence, uint64_t requested_bytes, uint64_t allocated_bytes,
                               uint64_t active_bytes, uint64_t reserved_bytes);

/*
 * Records free and total bytes of the calling thread's current device, and what NVML says of the processes on it (not
 * every time where that is slow). Calls the CUDA driver.
 */
SL_API_WAITS void sl_device_sample(void);

/*
 * The same, unless it would tell nothing new: since this thread's or any other's last sample, less than a second ago,
 * no memory went to or came from the driver and no GPU code was loaded, as far as is recorded. For the end of every
 * step.
 */
SL_API_WAITS void sl_device_sample_if_due(void);

/*
 * Hands CUPTI to another tool (torch.profiler) and takes activity recording back afterwards. Both call CUPTI; both
 * return 0, or a negative errno when CUPTI is not in use (-ENODEV) or refuses (-EBUSY).
 */
SL_API_WAITS int sl_cupti_release(void);
SL_API_WAITS int sl_cupti_reacquire(void);

#ifdef __cplusplus
}
#endif

#endif

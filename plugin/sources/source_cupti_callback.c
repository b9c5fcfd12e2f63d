/*
 * Capture source cupti_callback: every call of the CUDA driver that allocates or frees memory, with its thread, its
 * result and the library that made it; contexts and loaded GPU code.
 *
 * Only the calls of driver_calls.c, and the launch that NCCL uses, have their callback enabled, so other kernel
 * launches and copies stay untouched, but for those of steps in which uses of memory are followed. Events are written
 * when the call returns: only then outputs and the result are known.
 */
#include "caller.h"
#include "device_sampler.h"
#include "plugin/driver/driver_calls.h"
#include "plugin/log/event_log.h"
#include "plugin/log/thread_state.h"
#include "plugin/process/config.h"
#include "plugin/process/nsight_compute.h"
#include "plugin/process/undisturbed.h"
#include "plugin/shardledger.h"
#include "source.h"
#include "source_cupti.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "cupti_callback"

static const struct sl_cupti *_Atomic seat; /* set while this library is CUPTI's subscriber */
static CUpti_SubscriberHandle subscriber;   /* valid while seat is set */

const struct sl_cupti *sl_cupti_seat(void) {
  return atomic_load(&seat);
}

/* ---- contexts and their devices ---- */

#define CONTEXTS 64u

/* Device of the contexts seen lately, by the low bits of their id: id in the upper half, device + 1 in the lower. */
static _Atomic uint64_t context_devices[CONTEXTS];
static _Atomic uint32_t latest_device; /* for the few calls that need no context */

static uint32_t device_of(const struct sl_cupti *cupti, CUcontext context, uint32_t id) {
  if (!context)
    return atomic_load_explicit(&latest_device, memory_order_relaxed);
  uint64_t known = atomic_load_explicit(&context_devices[id % CONTEXTS], memory_order_relaxed);
  if (known >> 32 == id && (uint32_t)known != 0)
    return (uint32_t)known - 1;
  uint32_t device = 0;
  if (cupti->GetDeviceId(context, &device) != CUPTI_SUCCESS)
    return atomic_load_explicit(&latest_device, memory_order_relaxed);
  atomic_store_explicit(&latest_device, device, memory_order_relaxed);
  atomic_store_explicit(&context_devices[id % CONTEXTS], (uint64_t)id << 32 | (device + 1), memory_order_relaxed);
  return device;
}

/* ---- handles of physical memory that is not this device's ---- */

#define HANDLES 1024u

/*
 * A mapping's memory is taken to be the current device's own, except for handles in this table: imported from another
 * process, multicast objects, host memory, other devices. A full table forgets the oldest.
 */
static struct {
  pthread_mutex_t lock; /* held for a search, never across a call */
  struct {
    uint64_t handle; /* 0: free */
    struct sl_driver_place place;
  } entries[HANDLES];
  uint32_t next;
} handles = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint32_t handle_index(uint64_t handle) {
  uint32_t i = 0;
  while (i < HANDLES && handles.entries[i].handle != handle)
    i++;
  return i;
}

static void handle_remember(uint64_t handle, struct sl_driver_place place) {
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  pthread_mutex_lock(&handles.lock);
  uint32_t i = handle_index(handle);
  if (i == HANDLES)
    i = handle_index(0);
  if (i == HANDLES)
    i = handles.next++ % HANDLES;
  handles.entries[i].handle = handle;
  handles.entries[i].place = place;
  pthread_mutex_unlock(&handles.lock);
  sl_undisturbed_end(&before);
}

static void handle_forget(uint64_t handle) {
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  pthread_mutex_lock(&handles.lock);
  uint32_t i = handle_index(handle);
  if (handle && i < HANDLES)
    handles.entries[i].handle = 0;
  pthread_mutex_unlock(&handles.lock);
  sl_undisturbed_end(&before);
}

static void handle_recall(uint64_t handle, struct sl_driver_place *place) {
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  pthread_mutex_lock(&handles.lock);
  uint32_t i = handle_index(handle);
  if (handle && i < HANDLES)
    *place = handles.entries[i].place;
  pthread_mutex_unlock(&handles.lock);
  sl_undisturbed_end(&before);
}

/* ---- driver calls ---- */

static uint64_t bytes_of(const struct sl_driver_call *call, const void *parameters, bool done) {
  return call->size ? call->size(parameters, done) : sl_driver_parameter_read(parameters, call->bytes);
}

static void record_failure(const struct sl_driver_call *call, const void *parameters, uint32_t device,
                           uint32_t result) {
  struct sl_event_driver_failure event = {.bytes = bytes_of(call, parameters, false),
                                          .owner = sl_caller(),
                                          .api = sl_log_name(call->name),
                                          .result = result,
                                          .device = device};
  sl_log_append(SL_EVENT_driver_failure, &event, sizeof(event), NULL, 0);
}

static void record_allocation(const struct sl_driver_call *call, const void *parameters, uint32_t device) {
  uint64_t address = sl_driver_parameter_read(parameters, call->address);
  struct sl_driver_place place = {.device = device, .kind = call->kind};
  handle_recall(sl_driver_parameter_read(parameters, call->handle), &place);
  if (call->place) {
    struct sl_driver_place physical = {.device = device, .kind = SL_MEMORY_DEVICE};
    if (call->place(parameters, &physical) && (physical.kind != SL_MEMORY_DEVICE || physical.device != device))
      handle_remember(address, physical);
    else
      handle_forget(address); /* the value may have been another handle's before */
    place.device = physical.kind == SL_MEMORY_DEVICE ? physical.device : device;
  }
  struct sl_event_driver_allocation event = {.address = address,
                                             .bytes = bytes_of(call, parameters, true),
                                             .stream = sl_driver_parameter_read(parameters, call->stream),
                                             .owner = sl_caller(),
                                             .api = sl_log_name(call->name),
                                             .device = place.device,
                                             .kind = place.kind};
  sl_log_append(SL_EVENT_driver_allocation, &event, sizeof(event), NULL, 0);
  sl_source_device_changed();
}

static void record_free(const struct sl_driver_call *call, const void *parameters) {
  uint64_t address = sl_driver_parameter_read(parameters, call->address);
  if (address == 0)
    return; /* freeing NULL is allowed and does nothing */
  if (call->cbid == CUPTI_DRIVER_TRACE_CBID_cuMemRelease)
    handle_forget(address);
  struct sl_event_driver_free event = {.address = address,
                                       .bytes = bytes_of(call, parameters, true),
                                       .owner = sl_caller(),
                                       .api = sl_log_name(call->name)};
  sl_log_append(SL_EVENT_driver_free, &event, sizeof(event), NULL, 0);
  sl_source_device_changed();
}

/* ---- kernels of NCCL ---- */

/*
 * NCCL launches with cuLaunchKernelEx since CUDA 11.8; most of PyTorch's kernels do not, and stay untouched. The id
 * joins the launch to the kernel's time, and this thread's ranges to both.
 */
static const CUpti_CallbackId launches[] = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                                            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz};

/* Other ways to have a kernel run; watched while uses of memory are followed. */
static const CUpti_CallbackId other_launches[] = {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
                                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
                                                  CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
                                                  CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
                                                  CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz};

enum { LAUNCHES = sizeof(launches) / sizeof(*launches), OTHERS = sizeof(other_launches) / sizeof(*other_launches) };

static int (*_Atomic in_operator)(void); /* set while launches are watched */

static bool is_launch(uint32_t cbid) {
  return cbid == launches[0] || cbid == launches[1];
}

static bool is_other_launch(uint32_t cbid) {
  for (size_t i = 0; i < OTHERS; i++)
    if (cbid == other_launches[i])
      return true;
  return false;
}

/* ncclDevKernel_…, or mangled: _Z31ncclDevKernel_… */
static bool is_nccl_kernel(const char *name) {
  if (name && name[0] == '_' && name[1] == 'Z')
    for (name += 2; *name >= '0' && *name <= '9';)
      name++;
  return name && strncmp(name, "nccl", 4) == 0;
}

/* A kernel that no operator launches may use any memory. Kept out of the way of launches that are not watched. */
static __attribute__((cold, noinline)) void watched_launch(const CUpti_CallbackData *data) {
  int (*asked)(void) = atomic_load_explicit(&in_operator, memory_order_acquire);
  if (!asked || data->callbackSite != CUPTI_API_ENTER || asked() || is_nccl_kernel(data->symbolName))
    return;
  const struct sl_event_use_watch event = {.state = SL_USES_HIDDEN};
  sl_log_append(SL_EVENT_use_watch, &event, sizeof(event), NULL, 0);
}

static void launch(const CUpti_CallbackData *data) {
  if (data->callbackSite != CUPTI_API_EXIT) {
    if (atomic_load_explicit(&in_operator, memory_order_relaxed))
      watched_launch(data);
    return;
  }
  if (!is_nccl_kernel(data->symbolName) || !data->functionReturnValue ||
      *(const CUresult *)data->functionReturnValue != CUDA_SUCCESS)
    return;
  struct sl_event_launch event = {.correlation = data->correlationId};
  sl_log_append(SL_EVENT_launch, &event, sizeof(event), NULL, 0);
}

static __attribute__((noinline)) void driver_call(const struct sl_cupti *cupti, uint32_t cbid,
                                                  const CUpti_CallbackData *data) {
  if (is_other_launch(cbid)) {
    watched_launch(data);
    return;
  }
  if (data->callbackSite != CUPTI_API_EXIT || !data->functionParams || !data->functionReturnValue)
    return;
  const struct sl_driver_call *call = sl_driver_call_find(cbid);
  if (!call)
    return;
  CUresult result = *(const CUresult *)data->functionReturnValue;
  uint32_t device = device_of(cupti, data->context, data->contextUid);
  if (call->effect == SL_DRIVER_FREES) {
    if (result == CUDA_SUCCESS)
      record_free(call, data->functionParams);
  } else if (result != CUDA_SUCCESS) {
    record_failure(call, data->functionParams, device, (uint32_t)result);
  } else if (call->effect == SL_DRIVER_ALLOCATES) {
    record_allocation(call, data->functionParams, device);
  } else {
    handle_remember(sl_driver_parameter_read(data->functionParams, call->address),
                    (struct sl_driver_place){.device = device, .kind = SL_MEMORY_UNKNOWN});
  }
}

/* ---- contexts and GPU code ---- */

static void resource(const struct sl_cupti *cupti, uint32_t cbid, const CUpti_ResourceData *data) {
  uint32_t id = 0;
  cupti->GetContextId(data->context, &id);
  uint16_t device = (uint16_t)device_of(cupti, data->context, id);
  switch (cbid) {
  case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
  case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING: {
    struct sl_event_context event = {
        .context = id, .device = device, .created = cbid == CUPTI_CBID_RESOURCE_CONTEXT_CREATED};
    sl_log_append(SL_EVENT_context, &event, sizeof(event), NULL, 0);
    if (event.created)
      sl_device_sampler_add(device);
    break;
  }
  case CUPTI_CBID_RESOURCE_MODULE_LOADED:
  case CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING: {
    const CUpti_ModuleResourceData *module = data->resourceDescriptor;
    if (!module)
      break;
    struct sl_event_gpu_module event = {.bytes = module->cubinSize,
                                        .module = module->moduleId,
                                        .device = device,
                                        .loaded = cbid == CUPTI_CBID_RESOURCE_MODULE_LOADED};
    sl_log_append(SL_EVENT_gpu_module, &event, sizeof(event), NULL, 0);
    sl_source_device_changed();
    break;
  }
  default: break;
  }
}

static void CUPTIAPI on_callback(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void *data) {
  const struct sl_cupti *cupti = sl_cupti_seat();
  struct sl_thread *thread = cupti && data && sl_log_active() ? sl_thread() : NULL;
  if (!thread || thread->inside_cupti) /* should anything below ever call the driver, its callbacks end here */
    return;
  thread->inside_cupti = true;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && is_launch(cbid))
    launch(data);
  else if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
    driver_call(cupti, cbid, data);
  else if (domain == CUPTI_CB_DOMAIN_RESOURCE)
    resource(cupti, cbid, data);
  thread->inside_cupti = false;
}

/* ---- the seat ---- */

static const CUpti_CallbackIdResource resources[] = {
    CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_MODULE_LOADED, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING};

static CUptiResult turn(const struct sl_cupti *cupti, bool on, CUpti_CallbackDomain domain, uint32_t cbid) {
  CUptiResult result = cupti->EnableCallback(on, subscriber, domain, cbid);
  /* An older library does not know the newest calls; then nobody can make them either. */
  return result == CUPTI_ERROR_INVALID_PARAMETER ? CUPTI_SUCCESS : result;
}

static CUptiResult enable(const struct sl_cupti *cupti, CUpti_CallbackDomain domain, uint32_t cbid) {
  return turn(cupti, true, domain, cbid);
}

static bool wants_kernels(void) {
  return strcmp(sl_option_text(SL_OPTION_kernels), "none") != 0;
}

static bool turn_launches(const struct sl_cupti *cupti, bool on) {
  CUptiResult result = CUPTI_SUCCESS;
  for (size_t i = 0; i < OTHERS && result == CUPTI_SUCCESS; i++)
    result = turn(cupti, on, CUPTI_CB_DOMAIN_DRIVER_API, other_launches[i]);
  for (size_t i = 0; i < LAUNCHES && result == CUPTI_SUCCESS && !wants_kernels(); i++)
    result = turn(cupti, on, CUPTI_CB_DOMAIN_DRIVER_API, launches[i]);
  return result == CUPTI_SUCCESS;
}

bool sl_source_cupti_launches(int (*asked)(void)) {
  const struct sl_cupti *cupti = sl_cupti_seat();
  const bool watches = atomic_exchange(&in_operator, asked) != NULL;
  if (!cupti || (!asked && !watches))
    return false;
  return turn_launches(cupti, asked != NULL) && asked;
}

/* Another tool has the seat now: what it lets launch is not seen. */
static void launches_end(void) {
  const struct sl_event_use_watch event = {.state = SL_USES_PARTLY};
  if (atomic_exchange(&in_operator, NULL))
    sl_log_append(SL_EVENT_use_watch, &event, sizeof(event), NULL, 0);
}

static CUptiResult enable_all(const struct sl_cupti *cupti) {
  CUptiResult result = CUPTI_SUCCESS;
  for (size_t i = 0; i < sl_driver_call_count && result == CUPTI_SUCCESS; i++)
    result = enable(cupti, CUPTI_CB_DOMAIN_DRIVER_API, sl_driver_calls[i].cbid);
  for (size_t i = 0; wants_kernels() && i < LAUNCHES && result == CUPTI_SUCCESS; i++)
    result = enable(cupti, CUPTI_CB_DOMAIN_DRIVER_API, launches[i]);
  for (size_t i = 0; i < sizeof(resources) / sizeof(*resources) && result == CUPTI_SUCCESS; i++)
    result = enable(cupti, CUPTI_CB_DOMAIN_RESOURCE, resources[i]);
  return result;
}

/* Fills reason with why CUPTI can't be had, in words, and reports the source's state. */
static void report_refusal(const struct sl_cupti *cupti, CUptiResult result, const char *holder, char *reason,
                           size_t size) {
  /* CUPTI says "CUPTI for NAME", with "<not provided>" for tools that gave no name, such as PyTorch's profiler. */
  bool known = *holder && !strstr(holder, "not provided");
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    snprintf(reason, size, "%s uses CUPTI, which serves one tool per process", known ? holder : "another tool");
  else
    snprintf(reason, size, "CUPTI refused: %s (%d)", sl_cupti_result(cupti, result), (int)result);
  sl_source_state(NAME, "failed", reason);
}

static int take_seat(const struct sl_cupti *cupti, char *reason, size_t size) {
  char holder[128] = "";
  CUptiResult result;
  if (cupti->Subscribe_v2) {
    struct sl_cupti_subscriber parameters = {
        .size = sizeof(parameters), .name = "shardledger", .holder = holder, .holder_size = sizeof(holder)};
    result = cupti->Subscribe_v2(&subscriber, on_callback, NULL, &parameters);
    holder[sizeof(holder) - 1] = '\0';
  } else {
    result = cupti->Subscribe(&subscriber, on_callback, NULL);
  }
  if (result == CUPTI_ERROR_UNKNOWN) { /* what CUPTI says on a machine without a driver: nothing to tell the user */
    sl_source_state(NAME, "off", "no CUDA driver here");
    return -ENODEV;
  }
  if (result != CUPTI_SUCCESS) {
    report_refusal(cupti, result, holder, reason, size);
    return -EBUSY;
  }
  atomic_store(&seat, cupti);
  result = enable_all(cupti);
  if (result != CUPTI_SUCCESS) {
    atomic_store(&seat, NULL);
    cupti->Unsubscribe(subscriber); /* takes every callback back with it */
    report_refusal(cupti, result, holder, reason, size);
    return -EIO;
  }
  sl_source_state(NAME, "on", "");
  return 0;
}

int sl_cupti_seat_take(const struct sl_cupti *cupti) {
  char reason[256];
  return take_seat(cupti, reason, sizeof(reason));
}

void sl_cupti_seat_leave(const struct sl_cupti *cupti, const char *reason) {
  if (!atomic_exchange(&seat, NULL))
    return;
  cupti->Unsubscribe(subscriber);
  launches_end();
  if (reason)
    sl_source_state(NAME, "off", reason);
}

static int start(void) {
  if (strcmp(sl_option_text(SL_OPTION_cupti), "off") == 0) {
    sl_source_state(NAME, "off", "SHARDLEDGER_CUPTI=off");
    return -ENODEV;
  }
  /* It brings no subscriber that could be met at the seat, but replays kernels with the GPU's counters to itself. */
  if (sl_is_under_nsight_compute()) {
    static const char reason[] = "this process runs under Nsight Compute (ncu), which CUPTI is left to";
    sl_source_state(NAME, "off", reason);
    sl_say("driver-level memory and device times are not recorded: %s", reason);
    return -ENODEV;
  }
  const struct sl_cupti *cupti = sl_cupti_load();
  if (!cupti) {
    sl_source_state(NAME, "off", "no libcupti.so.13 or libcupti.so.12 found");
    return -ENODEV;
  }
  char reason[256] = "";
  int r = take_seat(cupti, reason, sizeof(reason));
  if (*reason)
    sl_say("driver-level memory and device times are not recorded: %s", reason);
  return r;
}

static void stop(void) {
  const struct sl_cupti *cupti = sl_cupti_seat();
  if (cupti)
    sl_cupti_seat_leave(cupti, NULL);
}

const struct sl_source sl_source_cupti_callback = {.name = NAME, .start = start, .stop = stop};

#include "fake_cupti.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFERS 16

static struct fake_cupti the = {.version = 130001};
static CUpti_CallbackFunc on_callback;
static void *callback_data;
static CUpti_BuffersCallbackRequestFunc buffer_requested;
static CUpti_BuffersCallbackCompleteFunc buffer_completed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the buffers; not held while the plugin is called */
static struct buffer {
  uint8_t *bytes;
  size_t size, used;
} buffers[BUFFERS];

static void set(int *field, int value) {
  __atomic_store_n(field, value, __ATOMIC_SEQ_CST);
}

static void add(int *field, int value) {
  __atomic_add_fetch(field, value, __ATOMIC_SEQ_CST);
}

static CUptiResult answer(const CUptiResult *field) {
  return __atomic_load_n(field, __ATOMIC_SEQ_CST);
}

struct fake_cupti *fake_cupti(void) {
  return &the;
}

__attribute__((destructor)) static void end(void) {
  if (the.at_exit)
    the.at_exit();
}

/* ---- what a test plays ---- */

void fake_cupti_play(CUpti_CallbackDomain domain, uint32_t cbid, const void *data) {
  bool enabled = domain == CUPTI_CB_DOMAIN_DRIVER_API
                     ? cbid < FAKE_CBIDS && fake_cupti_get(&the.driver_enabled[cbid])
                     : cbid < FAKE_KINDS && fake_cupti_get(&the.resource_enabled[cbid]);
  if (fake_cupti_get(&the.subscribed) && enabled)
    on_callback(callback_data, domain, cbid, data);
}

static bool is_zero(const struct buffer *buffer) {
  for (size_t i = 0; i < buffer->size; i++)
    if (buffer->bytes[i] != 0)
      return false;
  return true;
}

/* The last buffer if it has room, else a fresh one; taken out of the list, so that no flush takes it meanwhile. */
static struct buffer take_buffer(size_t bytes) {
  struct buffer buffer = {NULL, 0, 0};
  pthread_mutex_lock(&lock);
  for (int i = 0; i < BUFFERS && !buffer.bytes; i++) {
    if (buffers[i].bytes && buffers[i].used + bytes <= buffers[i].size) {
      buffer = buffers[i];
      buffers[i].bytes = NULL;
    }
  }
  pthread_mutex_unlock(&lock);
  if (buffer.bytes)
    return buffer;
  size_t records = 0;
  buffer_requested(&buffer.bytes, &buffer.size, &records);
  if (buffer.bytes) {
    add(&the.buffers_taken, 1);
    add(&the.buffers_out, 1);
    add(&the.buffers_dirty, !is_zero(&buffer));
  }
  return buffer;
}

void fake_cupti_record(const void *record, size_t bytes) {
  struct buffer buffer = take_buffer(bytes);
  if (!buffer.bytes) {
    __atomic_add_fetch(&the.dropped, 1, __ATOMIC_SEQ_CST);
    return;
  }
  memcpy(buffer.bytes + buffer.used, record, bytes);
  buffer.used += bytes;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < BUFFERS; i++) {
    if (!buffers[i].bytes) {
      buffers[i] = buffer;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
}

void fake_cupti_request(uint8_t **buffer, size_t *size) {
  size_t records = 0;
  buffer_requested(buffer, size, &records);
}

void fake_cupti_complete(uint8_t *buffer, size_t size, size_t valid) {
  buffer_completed(NULL, 0, buffer, size, valid);
}

/* ---- CUPTI ---- */

CUptiResult cuptiGetVersion(uint32_t *version) {
  *version = the.version;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  uint64_t start = __atomic_load_n(&the.counter_start, __ATOMIC_SEQ_CST);
  *timestamp = start ? (ns - start) * 2 : ns;
  if (__atomic_load_n(&the.clock_stalls, __ATOMIC_SEQ_CST) > 0) {
    __atomic_fetch_sub(&the.clock_stalls, 1, __ATOMIC_SEQ_CST);
    usleep(20000);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  *text = "CUPTI_ERROR_OF_THE_FAKE";
  return CUPTI_SUCCESS;
}

/* A context is a number here: its id. */
CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id) {
  *id = (uint32_t)(uintptr_t)context;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *device) {
  *device = the.device;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data) {
  if (the.subscribe != CUPTI_SUCCESS)
    return the.subscribe;
  if (the.subscribed)
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  on_callback = callback;
  callback_data = data;
  set(&the.subscribed, 1);
  *subscriber = (CUpti_SubscriberHandle)&the;
  return CUPTI_SUCCESS;
}

#ifndef FAKE_OLD /* libcupti.so.12 of CUDA 12.0 lacks these two */
struct subscriber_parameters {
  size_t size;
  const char *name;
  char *holder;
  size_t holder_size;
};

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data,
                              CUpti_SubscriberParams *opaque) {
  struct subscriber_parameters *parameters = (struct subscriber_parameters *)opaque;
  strncpy(the.subscriber, parameters->name, sizeof(the.subscriber) - 1);
  if (the.subscribe == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && the.holder)
    strncpy(parameters->holder, the.holder, parameters->holder_size);
  return cuptiSubscribe(subscriber, callback, data);
}
#endif

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  set(&the.subscribed, 0);
  for (int i = 0; i < FAKE_CBIDS; i++)
    set(&the.driver_enabled[i], 0);
  for (int i = 0; i < FAKE_KINDS; i++)
    set(&the.resource_enabled[i], 0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId cbid) {
  if (!the.subscribed)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid < FAKE_CBIDS) {
    if (cbid == the.unknown_cbid)
      return CUPTI_ERROR_INVALID_PARAMETER;
    set(&the.driver_enabled[cbid], (int)enable);
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE && cbid < FAKE_KINDS) {
    set(&the.resource_enabled[cbid], (int)enable);
  } else {
    the.others_enabled++;
  }
  return the.enable_callback;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain) {
  the.others_enabled++;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  buffer_requested = requested;
  buffer_completed = completed;
  the.buffers_registered++;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  CUptiResult result = answer(&the.activity_enable[kind]);
  if (result != CUPTI_SUCCESS)
    return result;
  set(&the.active[kind], 1);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  set(&the.active[kind], 0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
  for (int kind = 0; kind < FAKE_KINDS; kind++)
    if (the.active[kind]) {
      the.attributes_after_enable++;
      break;
    }
  if (attribute == CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE && *size == sizeof(size_t))
    memcpy(&the.device_buffer_bytes, value, *size);
  if (attribute == CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT && *size == sizeof(size_t))
    memcpy(&the.device_buffer_limit, value, *size);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  add(&the.flushes, 1);
  add(&the.forced_flushes, flag != 0);
  for (int i = 0; i < BUFFERS; i++) {
    pthread_mutex_lock(&lock);
    struct buffer buffer = buffers[i];
    buffers[i].bytes = NULL;
    pthread_mutex_unlock(&lock);
    if (buffer.bytes) {
      buffer_completed((CUcontext)1, 7, buffer.bytes, buffer.size, buffer.used);
      add(&the.buffers_out, -1);
    }
  }
  return answer(&the.flush);
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
  uint8_t *next = buffer;
  if (*record) {
    uint32_t kind = (uint32_t)(*record)->kind;
    size_t bytes = kind < FAKE_KINDS ? the.record_bytes[kind] : 0;
    next = (uint8_t *)*record + (bytes ? bytes : 64);
  }
  if (next >= buffer + valid)
    return the.next_record != CUPTI_SUCCESS ? the.next_record : CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)next;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
  *dropped = __atomic_exchange_n(&the.dropped, 0, __ATOMIC_SEQ_CST);
  return CUPTI_SUCCESS;
}

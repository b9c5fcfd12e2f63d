#include "fake_cupti.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define BUFFERS 16

static struct fake_cupti the = {.version = 130001};
static CUpti_CallbackFunc on_callback;
static void *callback_data;
static CUpti_BuffersCallbackRequestFunc buffer_requested;
static CUpti_BuffersCallbackCompleteFunc buffer_completed;

static struct {
  uint8_t *bytes;
  size_t size, used;
} buffers[BUFFERS];

struct fake_cupti *fake_cupti(void) {
  return &the;
}

__attribute__((destructor)) static void end(void) {
  if (the.at_exit)
    the.at_exit();
}

/* ---- what a test plays ---- */

void fake_cupti_play(CUpti_CallbackDomain domain, uint32_t cbid, const void *data) {
  bool enabled = domain == CUPTI_CB_DOMAIN_DRIVER_API ? cbid < FAKE_CBIDS && the.driver_enabled[cbid]
                                                      : cbid < FAKE_KINDS && the.resource_enabled[cbid];
  if (the.subscribed && enabled)
    on_callback(callback_data, domain, cbid, data);
}

void fake_cupti_record(const void *record, size_t bytes) {
  for (int i = 0; i < BUFFERS; i++) {
    if (!buffers[i].bytes) {
      size_t records = 0;
      buffer_requested(&buffers[i].bytes, &buffers[i].size, &records);
      buffers[i].used = 0;
      the.buffers_out++;
      if (!buffers[i].bytes) {
        the.dropped++;
        the.buffers_out--;
        return;
      }
      for (size_t j = 0; j < buffers[i].size; j++)
        if (buffers[i].bytes[j] != 0) {
          the.buffers_dirty++;
          break;
        }
    }
    if (buffers[i].used + bytes <= buffers[i].size) {
      memcpy(buffers[i].bytes + buffers[i].used, record, bytes);
      buffers[i].used += bytes;
      return;
    }
  }
}

void fake_cupti_complete_foreign(uint8_t *buffer, size_t size) {
  buffer_completed(NULL, 0, buffer, size, 0);
}

/* ---- CUPTI ---- */

CUptiResult cuptiGetVersion(uint32_t *version) {
  *version = the.version;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
  *timestamp = 1;
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
  on_callback = callback;
  callback_data = data;
  the.subscribed = 1;
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

CUptiResult cuptiActivityEnableAllocationSource(uint8_t enable) {
  the.allocation_source = enable;
  return CUPTI_SUCCESS;
}
#endif

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  the.subscribed = 0;
  memset(the.driver_enabled, 0, sizeof(the.driver_enabled));
  memset(the.resource_enabled, 0, sizeof(the.resource_enabled));
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId cbid) {
  if (!the.subscribed)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid < FAKE_CBIDS) {
    if (cbid == the.unknown_cbid)
      return CUPTI_ERROR_INVALID_PARAMETER;
    the.driver_enabled[cbid] = (int)enable;
  } else if (domain == CUPTI_CB_DOMAIN_RESOURCE && cbid < FAKE_KINDS) {
    the.resource_enabled[cbid] = (int)enable;
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
  if (the.activity_enable[kind] != CUPTI_SUCCESS)
    return the.activity_enable[kind];
  the.active[kind] = 1;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  the.active[kind] = 0;
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
  the.flushes++;
  the.forced_flushes += flag != 0;
  for (int i = 0; i < BUFFERS; i++) {
    if (!buffers[i].bytes)
      continue;
    uint8_t *bytes = buffers[i].bytes;
    buffers[i].bytes = NULL;
    the.buffers_out--;
    buffer_completed((CUcontext)1, 7, bytes, buffers[i].size, buffers[i].used);
  }
  return the.flush;
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
  *dropped = the.dropped;
  the.dropped = 0;
  return CUPTI_SUCCESS;
}

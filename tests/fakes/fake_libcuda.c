#include "fake_cuda.h"

#include <stdio.h>
#include <string.h>

static struct fake_cuda the = {.free_bytes = 60, .total_bytes = 100};

struct fake_cuda *fake_cuda(void) {
  return &the;
}

int cuCtxGetCurrent(void **context) {
  the.calls++;
  *context = the.context ? &the : NULL;
  return 0;
}

int cuCtxGetDevice(int *device) {
  the.calls++;
  *device = the.device;
  return the.context ? 0 : 201;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  the.calls++;
  *free_bytes = the.free_bytes;
  *total_bytes = the.total_bytes;
  return the.result;
}

int cuDeviceGetName(char *name, int size, int device) {
  the.calls++;
  snprintf(name, (size_t)size, "Fake GPU %d", device);
  return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  the.calls++;
  for (int i = 0; i < 16; i++)
    uuid[i] = (unsigned char)(16 * i + device);
  return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  the.calls++;
  *bytes = the.total_bytes;
  return 0;
}

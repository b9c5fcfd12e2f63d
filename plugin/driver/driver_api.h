/*
 * The few functions of libcuda that the plugin calls, looked up at run time in the copy that the process has loaded.
 * Never linked and never loaded by us: a process without a GPU stays one.
 */
#ifndef SHARDLEDGER_DRIVER_API_H
#define SHARDLEDGER_DRIVER_API_H

#include <cuda.h>

/* Each with the name that the library exports: cuda.h renames some of them by macros. */
#define SL_DRIVER_FUNCTIONS(FUNCTION)                                                                                  \
  FUNCTION(ctx_get_current, "cuCtxGetCurrent", (CUcontext *))                                                          \
  FUNCTION(ctx_get_device, "cuCtxGetDevice", (CUdevice *))                                                             \
  FUNCTION(mem_get_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                                      \
  FUNCTION(device_get_name, "cuDeviceGetName", (char *, int, CUdevice))                                                \
  FUNCTION(device_get_uuid, "cuDeviceGetUuid_v2", (CUuuid *, CUdevice))                                                \
  FUNCTION(device_total_mem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))

struct sl_driver {
#define FUNCTION(field, name, parameters) CUresult(CUDAAPI *field) parameters;
  SL_DRIVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* NULL while libcuda.so.1 is not loaded, or when it lacks one of the functions. Owned by the loader. */
const struct sl_driver *sl_driver_load(void);

#endif

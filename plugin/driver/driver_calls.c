/*
 * What each call allocates or frees is one line of a table. Only where a size is not one of the parameters, as of an
 * array, it takes a function.
 */
#include "driver_calls.h"

#include <cupti.h> /* with generated_cuda_meta.h: the parameters of every driver call */

#include <string.h>

/* ---- calls whose size or place takes more than reading one parameter ---- */

/* The pitch is the driver's choice: before it is known the plain width stands in. */
static uint64_t pitched_size(const void *parameters, bool done) {
  const cuMemAllocPitch_v2_params *p = parameters;
  return (done && p->pPitch ? *p->pPitch : p->WidthInBytes) * (uint64_t)p->Height;
}

static uint64_t pitched_size_v1(const void *parameters, bool done) {
  const cuMemAllocPitch_params *p = parameters;
  return (done && p->pPitch ? *p->pPitch : p->WidthInBytes) * (uint64_t)p->Height;
}

/* 0 for block-compressed and planar formats: their size is not a multiple of an element's. */
static uint64_t element_size(CUarray_format format, unsigned channels) {
  switch ((int)format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8: return channels;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF: return 2ull * channels;
  case CU_AD_FORMAT_UNSIGNED_INT32:
  case CU_AD_FORMAT_SIGNED_INT32:
  case CU_AD_FORMAT_FLOAT: return 4ull * channels;
  default: return 0;
  }
}

/* A dimension of 0 is one that the array does not have. */
static uint64_t volume(size_t width, size_t height, size_t depth) {
  return (uint64_t)width * (height ? height : 1) * (depth ? depth : 1);
}

static uint64_t array_size(const void *parameters, bool done) {
  const CUDA_ARRAY_DESCRIPTOR *array = ((const cuArrayCreate_v2_params *)parameters)->pAllocateArray;
  return array ? volume(array->Width, array->Height, 0) * element_size(array->Format, array->NumChannels) : 0;
}

static uint64_t array_size_3d(const void *parameters, bool done) {
  const CUDA_ARRAY3D_DESCRIPTOR *array = ((const cuArray3DCreate_v2_params *)parameters)->pAllocateArray;
  return array ? volume(array->Width, array->Height, array->Depth) * element_size(array->Format, array->NumChannels)
               : 0;
}

static uint64_t mipmapped_size(const void *parameters, bool done) {
  const cuMipmappedArrayCreate_params *p = parameters;
  const CUDA_ARRAY3D_DESCRIPTOR *array = p->pMipmappedArrayDesc;
  uint64_t elements = 0;
  for (unsigned level = 0; array && level < p->numMipmapLevels && level < 32; level++) {
    size_t width = array->Width >> level;
    if (width == 0 && array->Height >> level == 0 && array->Depth >> level == 0)
      break;
    elements += volume(width ? width : 1, array->Height >> level, array->Depth >> level);
  }
  return array ? elements * element_size(array->Format, array->NumChannels) : 0;
}

static uint64_t external_size(const void *parameters, bool done) {
  const cuImportExternalMemory_params *p = parameters;
  return p->memHandleDesc ? p->memHandleDesc->size : 0;
}

static uint64_t external_buffer_size(const void *parameters, bool done) {
  const cuExternalMemoryGetMappedBuffer_params *p = parameters;
  return p->bufferDesc ? p->bufferDesc->size : 0;
}

static uint64_t multicast_size(const void *parameters, bool done) {
  const cuMulticastCreate_params *p = parameters;
  return p->prop ? p->prop->size : 0;
}

static bool created_place(const void *parameters, struct sl_driver_place *place) {
  const cuMemCreate_params *p = parameters;
  if (!p->prop)
    return false;
  bool device = p->prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  *place = (struct sl_driver_place){.device = device ? (uint32_t)p->prop->location.id : 0,
                                    .kind = device ? SL_MEMORY_DEVICE : SL_MEMORY_PINNED};
  return true;
}

/* ---- the table ---- */

#define IN(call, field)                                                                                                \
  { offsetof(call##_params, field), sizeof(((call##_params *)0)->field), false }
#define OUT(call, field)                                                                                               \
  { offsetof(call##_params, field), sizeof(*((call##_params *)0)->field), true }

#define ALLOCATES(call, memory_kind, ...)                                                                              \
  {                                                                                                                    \
    .cbid = CUPTI_DRIVER_TRACE_CBID_##call, .name = #call, .effect = SL_DRIVER_ALLOCATES, .kind = memory_kind,         \
    __VA_ARGS__                                                                                                        \
  }
#define FREES(call, ...)                                                                                               \
  { .cbid = CUPTI_DRIVER_TRACE_CBID_##call, .name = #call, .effect = SL_DRIVER_FREES, __VA_ARGS__ }
#define IMPORTS(call, ...)                                                                                             \
  { .cbid = CUPTI_DRIVER_TRACE_CBID_##call, .name = #call, .effect = SL_DRIVER_IMPORTS, __VA_ARGS__ }

/*
 * Physical memory of the virtual memory calls is counted where it is mapped, as CUPTI's own MEMORY records do it;
 * cuMemCreate's handle is recorded with kind UNKNOWN, so nothing is counted twice.
 */
const struct sl_driver_call sl_driver_calls[] = {
    /* device memory */
    ALLOCATES(cuMemAlloc, SL_MEMORY_DEVICE, .address = OUT(cuMemAlloc, dptr), .bytes = IN(cuMemAlloc, bytesize)),
    ALLOCATES(cuMemAlloc_v2, SL_MEMORY_DEVICE, .address = OUT(cuMemAlloc_v2, dptr),
              .bytes = IN(cuMemAlloc_v2, bytesize)),
    ALLOCATES(cuMemAllocPitch, SL_MEMORY_DEVICE, .address = OUT(cuMemAllocPitch, dptr), .size = pitched_size_v1),
    ALLOCATES(cuMemAllocPitch_v2, SL_MEMORY_DEVICE, .address = OUT(cuMemAllocPitch_v2, dptr), .size = pitched_size),
    ALLOCATES(cuMemAllocManaged, SL_MEMORY_MANAGED, .address = OUT(cuMemAllocManaged, dptr),
              .bytes = IN(cuMemAllocManaged, bytesize)),
    FREES(cuMemFree, .address = IN(cuMemFree, dptr)),
    FREES(cuMemFree_v2, .address = IN(cuMemFree_v2, dptr)),
    /* host memory that the device can reach */
    ALLOCATES(cuMemAllocHost, SL_MEMORY_PINNED, .address = OUT(cuMemAllocHost, pp),
              .bytes = IN(cuMemAllocHost, bytesize)),
    ALLOCATES(cuMemAllocHost_v2, SL_MEMORY_PINNED, .address = OUT(cuMemAllocHost_v2, pp),
              .bytes = IN(cuMemAllocHost_v2, bytesize)),
    ALLOCATES(cuMemHostAlloc, SL_MEMORY_PINNED, .address = OUT(cuMemHostAlloc, pp),
              .bytes = IN(cuMemHostAlloc, bytesize)),
    ALLOCATES(cuMemHostAlloc_v2, SL_MEMORY_PINNED, .address = OUT(cuMemHostAlloc, pp),
              .bytes = IN(cuMemHostAlloc, bytesize)),
    ALLOCATES(cuMemHostRegister, SL_MEMORY_PINNED, .address = IN(cuMemHostRegister, p),
              .bytes = IN(cuMemHostRegister, bytesize)),
    ALLOCATES(cuMemHostRegister_v2, SL_MEMORY_PINNED, .address = IN(cuMemHostRegister_v2, p),
              .bytes = IN(cuMemHostRegister_v2, bytesize)),
    FREES(cuMemFreeHost, .address = IN(cuMemFreeHost, p)),
    FREES(cuMemHostUnregister, .address = IN(cuMemHostUnregister, p)),
    /* stream-ordered */
    ALLOCATES(cuMemAllocAsync, SL_MEMORY_DEVICE, .address = OUT(cuMemAllocAsync, dptr),
              .bytes = IN(cuMemAllocAsync, bytesize), .stream = IN(cuMemAllocAsync, hStream)),
    ALLOCATES(cuMemAllocAsync_ptsz, SL_MEMORY_DEVICE, .address = OUT(cuMemAllocAsync_ptsz, dptr),
              .bytes = IN(cuMemAllocAsync_ptsz, bytesize), .stream = IN(cuMemAllocAsync_ptsz, hStream)),
    ALLOCATES(cuMemAllocFromPoolAsync, SL_MEMORY_DEVICE, .address = OUT(cuMemAllocFromPoolAsync, dptr),
              .bytes = IN(cuMemAllocFromPoolAsync, bytesize), .stream = IN(cuMemAllocFromPoolAsync, hStream)),
    ALLOCATES(cuMemAllocFromPoolAsync_ptsz, SL_MEMORY_DEVICE, .address = OUT(cuMemAllocFromPoolAsync_ptsz, dptr),
              .bytes = IN(cuMemAllocFromPoolAsync_ptsz, bytesize), .stream = IN(cuMemAllocFromPoolAsync_ptsz, hStream)),
    FREES(cuMemFreeAsync, .address = IN(cuMemFreeAsync, dptr), .stream = IN(cuMemFreeAsync, hStream)),
    FREES(cuMemFreeAsync_ptsz, .address = IN(cuMemFreeAsync_ptsz, dptr), .stream = IN(cuMemFreeAsync_ptsz, hStream)),
    ALLOCATES(cuMemPoolCreate, SL_MEMORY_UNKNOWN, .address = OUT(cuMemPoolCreate, pool)),
    FREES(cuMemPoolDestroy, .address = IN(cuMemPoolDestroy, pool)),
    /* virtual memory */
    ALLOCATES(cuMemCreate, SL_MEMORY_UNKNOWN, .address = OUT(cuMemCreate, handle), .bytes = IN(cuMemCreate, size),
              .place = created_place),
    FREES(cuMemRelease, .address = IN(cuMemRelease, handle)),
    ALLOCATES(cuMemMap, SL_MEMORY_DEVICE, .address = IN(cuMemMap, ptr), .bytes = IN(cuMemMap, size),
              .handle = IN(cuMemMap, handle)),
    FREES(cuMemUnmap, .address = IN(cuMemUnmap, ptr), .bytes = IN(cuMemUnmap, size)),
    IMPORTS(cuMemImportFromShareableHandle, .address = OUT(cuMemImportFromShareableHandle, handle)),
    IMPORTS(cuMulticastCreate, .address = OUT(cuMulticastCreate, mcHandle), .size = multicast_size),
    /* memory of other processes and of other APIs */
    ALLOCATES(cuIpcOpenMemHandle, SL_MEMORY_UNKNOWN, .address = OUT(cuIpcOpenMemHandle, pdptr)),
    ALLOCATES(cuIpcOpenMemHandle_v2, SL_MEMORY_UNKNOWN, .address = OUT(cuIpcOpenMemHandle_v2, pdptr)),
    FREES(cuIpcCloseMemHandle, .address = IN(cuIpcCloseMemHandle, dptr)),
    ALLOCATES(cuImportExternalMemory, SL_MEMORY_UNKNOWN, .address = OUT(cuImportExternalMemory, extMem_out),
              .size = external_size),
    ALLOCATES(cuExternalMemoryGetMappedBuffer, SL_MEMORY_UNKNOWN,
              .address = OUT(cuExternalMemoryGetMappedBuffer, devPtr), .size = external_buffer_size),
    FREES(cuDestroyExternalMemory, .address = IN(cuDestroyExternalMemory, extMem)),
    /* arrays */
    ALLOCATES(cuArrayCreate_v2, SL_MEMORY_ARRAY, .address = OUT(cuArrayCreate_v2, pHandle), .size = array_size),
    ALLOCATES(cuArray3DCreate_v2, SL_MEMORY_ARRAY, .address = OUT(cuArray3DCreate_v2, pHandle), .size = array_size_3d),
    FREES(cuArrayDestroy, .address = IN(cuArrayDestroy, hArray)),
    ALLOCATES(cuMipmappedArrayCreate, SL_MEMORY_ARRAY, .address = OUT(cuMipmappedArrayCreate, pHandle),
              .size = mipmapped_size),
    FREES(cuMipmappedArrayDestroy, .address = IN(cuMipmappedArrayDestroy, hMipmappedArray)),
};

const size_t sl_driver_call_count = sizeof(sl_driver_calls) / sizeof(*sl_driver_calls);

const struct sl_driver_call *sl_driver_call_find(uint32_t cbid) {
  for (size_t i = 0; i < sl_driver_call_count; i++)
    if (sl_driver_calls[i].cbid == cbid)
      return &sl_driver_calls[i];
  return NULL;
}

uint64_t sl_driver_parameter_read(const void *parameters, struct sl_driver_parameter parameter) {
  if (parameter.width == 0)
    return 0;
  const void *at = (const char *)parameters + parameter.offset;
  if (parameter.out && !(at = *(const void *const *)at))
    return 0;
  uint64_t value = 0; /* little-endian: a narrower value fills the low bytes */
  memcpy(&value, at, parameter.width);
  return value;
}

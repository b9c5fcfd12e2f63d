/* Driving fake_libcuda.c: the few functions of libcuda.so.1 that the plugin calls, without a GPU. */
#ifndef SHARDLEDGER_TESTS_FAKE_CUDA_H
#define SHARDLEDGER_TESTS_FAKE_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_cuda {
  int context; /* whether the calling thread has a current context */
  int device;  /* of that context */
  size_t free_bytes, total_bytes;
  int result; /* of cuMemGetInfo: a CUresult */
  int calls;  /* of any of the functions */
};

struct fake_cuda *fake_cuda(void);

#ifdef __cplusplus
}
#endif

#endif

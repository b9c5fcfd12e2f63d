/* Which library of the process called the CUDA driver: the owner of what the call allocated. */
#ifndef SHARDLEDGER_CALLER_H
#define SHARDLEDGER_CALLER_H

#include <stdint.h>

/*
 * Id of the file name of the innermost library on this thread's stack that is neither the CUDA driver or runtime, nor
 * CUPTI, nor this library: libc10_cuda.so, libnccl.so.2, the program itself. 0 when the stack can't be walked that far.
 * Several microseconds: for calls that allocate from the driver, never for kernel launches.
 */
uint32_t sl_caller(void);

#endif

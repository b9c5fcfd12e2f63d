/* The owners of a device's memory in words, for every command that lists them. */
#ifndef SHARDLEDGER_DEVICE_QUERIES_H
#define SHARDLEDGER_DEVICE_QUERIES_H

/* Owners in the order in which people ask for them, and what they are. Others are libraries, by their file's name. */
/* clang-format off */
#define SL_SQL_KNOWN "known(owner, meaning, place) AS (SELECT column1, column2, row_number() OVER () FROM (VALUES" \
  "('used','all that is in use, as the driver says'),"                                          \
  "('allocated','tensors: memory_allocated() of PyTorch without the workspaces'),"              \
  "('cublas_workspace','workspaces that PyTorch made for cuBLAS, also in memory_allocated()')," \
  "('pending','freed by PyTorch, but another stream may still use it'),"                        \
  "('cached','free in PyTorch''s cache, part of memory_reserved()'),"                           \
  "('private_pools','CUDA graphs'' and MemPools'' part of memory_reserved(), used or free'),"   \
  "('pytorch','PyTorch''s; its allocator was not recorded'),"                                   \
  "('pytorch_other','PyTorch''s, not in memory_reserved() as recorded'),"                       \
  "('nccl','NCCL''s buffers'),"                                                                 \
  "('cublas','workspaces that cuBLAS made itself'),"                                            \
  "('cudnn','cuDNN''s own'),"                                                                   \
  "('driver_pools','kept by the driver''s pools of cudaMallocAsync after a free, at most'),"    \
  "('cuda_context','the CUDA context, before any GPU code; about 12 MiB of it for CUPTI'),"     \
  "('gpu_code','kernels: what came while GPU code was loaded'),"                                \
  "('context_and_code','the CUDA context and kernels, first measured together'),"               \
  "('other_processes','other processes on this GPU, as NVML says'),"                            \
  "('unexplained','what nobody owns')))"
/* clang-format on */
#define SL_SQL_MEANING "coalesce(k.meaning, 'a library, by its file''s name')"
#define SL_SQL_PLACE "coalesce(k.place, 11.5)" /* libraries stand behind cuDNN */

#endif

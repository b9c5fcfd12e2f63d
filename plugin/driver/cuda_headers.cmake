# Where the headers of CUPTI, the CUDA driver and NVTX 3 are: -DSHARDLEDGER_CUDA_INCLUDE=dir;dir, else an installed
# toolkit, else the PyPI wheels nvidia-cuda-cupti, nvidia-cuda-runtime, nvidia-nvtx (scripts/setup unpacks them).
# Headers only: libcupti and libcuda are looked up at run time.
set(SHARDLEDGER_CUDA_INCLUDE "" CACHE STRING "include directories with cuda.h, cupti.h and nvtx3/")
find_package(CUDAToolkit QUIET)
list(TRANSFORM CMAKE_PREFIX_PATH APPEND /nvidia/cu13/include OUTPUT_VARIABLE wheels) # pip's build environment
foreach(header cuda.h cupti.h nvtx3/nvToolsExt.h)
  string(MAKE_C_IDENTIFIER ${header} name)
  find_path(SHARDLEDGER_${name} ${header}
            HINTS ${SHARDLEDGER_CUDA_INCLUDE} ${wheels} ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
                  /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include)
  if(NOT SHARDLEDGER_${name})
    message(FATAL_ERROR "${header} not found. Install a CUDA toolkit, or run scripts/setup, which takes it from PyPI.")
  endif()
  list(APPEND SHARDLEDGER_CUDA_HEADERS ${SHARDLEDGER_${name}})
endforeach()
list(REMOVE_DUPLICATES SHARDLEDGER_CUDA_HEADERS)

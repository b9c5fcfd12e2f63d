# What the tests of the capture sources (plugin_source_test) attach the real plugin to, in processes of their own: fakes
# of CUPTI and libcuda, and real copies of NVTX.
include(${PROJECT_SOURCE_DIR}/plugin/driver/cuda_headers.cmake)
set(fakes ${PROJECT_SOURCE_DIR}/tests/fakes)

# fake_library(target soname SOURCES …): in a directory of its own, because two of them have one file name.
function(fake_library target file)
  add_library(${target} SHARED ${ARGN})
  target_include_directories(${target} SYSTEM PRIVATE ${SHARDLEDGER_CUDA_HEADERS})
  target_link_options(${target} PRIVATE -Wl,-soname,${file})
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${file} LIBRARY_OUTPUT_DIRECTORY
                                             ${CMAKE_BINARY_DIR}/fakes/${target} C_VISIBILITY_PRESET default)
endfunction()
fake_library(fake_cupti libcupti.so.13 ${fakes}/fake_libcupti.c)
fake_library(fake_cupti_old libcupti.so.12 ${fakes}/fake_libcupti.c)
target_compile_definitions(fake_cupti_old PRIVATE FAKE_OLD)
fake_library(fake_cuda libcuda.so.1 ${fakes}/fake_libcuda.c)
fake_library(fake_nvml libnvidia-ml.so.1 ${fakes}/fake_libnvml.c)
# Tests change what these answer while the library's threads ask, as a device's memory changes under everybody: no race of ours.
foreach(fake fake_cuda fake_nvml)
  target_compile_options(${fake} PRIVATE -fno-sanitize=thread)
endforeach()
fake_library(caller_library libcaller.so ${fakes}/caller_library.c)
fake_library(failing_memory libfailing_memory.so ${fakes}/failing_memory.c)
target_link_libraries(failing_memory PRIVATE ${CMAKE_DL_LIBS})
fake_library(other_injection libother.so ${fakes}/other_injection.c)
target_link_libraries(other_injection PRIVATE fake_cupti)
foreach(name alpha beta)
  fake_library(nvtx_${name} libnvtx_${name}.so ${fakes}/nvtx_library.cc)
  target_compile_definitions(nvtx_${name} PRIVATE LIBRARY=${name})
  set_target_properties(nvtx_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  # NVTX's headers read their function slots while they may be written (a race of theirs, and benign), and their macros
  # leave fields of structs to their defaults.
  target_compile_options(nvtx_${name} PRIVATE -fno-sanitize=thread -Wno-missing-field-initializers)
endforeach()

target_compile_definitions(plugin_source_test PRIVATE
  PLUGIN="$<TARGET_FILE:shardledger>" FAKE_CUPTI="$<TARGET_FILE:fake_cupti>"
  FAKE_CUPTI_OLD="$<TARGET_FILE:fake_cupti_old>" FAKE_CUDA="$<TARGET_FILE:fake_cuda>"
  FAKE_NVML="$<TARGET_FILE:fake_nvml>" FAILING_MEMORY="$<TARGET_FILE:failing_memory>"
  CALLER_LIBRARY="$<TARGET_FILE:caller_library>" OTHER_INJECTION="$<TARGET_FILE:other_injection>" NVTX_ALPHA="$<TARGET_FILE:nvtx_alpha>"
  NVTX_BETA="$<TARGET_FILE:nvtx_beta>")
add_dependencies(plugin_source_test shardledger fake_cupti fake_cupti_old fake_cuda fake_nvml failing_memory caller_library other_injection nvtx_alpha nvtx_beta)

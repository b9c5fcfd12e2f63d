/* Driver calls played by a fake libcupti against the real plugin. */
#include "plugin/cupti_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#define CBID(call) CUPTI_DRIVER_TRACE_CBID_##call

static void allocate(CuptiProcess &process, CUdeviceptr address, size_t bytes, CUresult result = CUDA_SUCCESS,
                     uintptr_t context = 1) {
  cuMemAlloc_v2_params parameters = {&address, bytes};
  process.driver_call(CBID(cuMemAlloc_v2), &parameters, result, context);
}

TEST(SourceCuptiCallback, AnAllocationAndItsFreeAreRecorded) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) { p.cupti->device = 3; });
    allocate(process, 0x7000, 4096);
    cuMemFree_v2_params parameters = {0x7000};
    process.driver_call(CBID(cuMemFree_v2), &parameters);
    EXPECT_STREQ(process.cupti->subscriber, "shardledger");
  });
  auto allocations = ALL(log, driver_allocation);
  ASSERT_EQ(allocations.size(), 1u);
  EXPECT_EQ(allocations[0].address, 0x7000u);
  EXPECT_EQ(allocations[0].bytes, 4096u);
  EXPECT_EQ(allocations[0].device, 3u);
  EXPECT_EQ(allocations[0].kind, static_cast<uint32_t>(SL_MEMORY_DEVICE));
  EXPECT_EQ(log.name(allocations[0].api), "cuMemAlloc_v2");
  auto frees = ALL(log, driver_free);
  ASSERT_EQ(frees.size(), 1u);
  EXPECT_EQ(frees[0].address, 0x7000u);
  EXPECT_EQ(log.name(frees[0].api), "cuMemFree_v2");
  EXPECT_EQ(log.state("cupti_callback"), "on: ");
}

TEST(SourceCuptiCallback, TheOwnerIsTheInnermostLibraryThatIsNotCuda) {
  Recording log = record({}, [] {
    CuptiProcess process;
    CUdeviceptr address = 0x9000;
    cuMemAlloc_v2_params parameters = {&address, 64};
    process.driver_call(CBID(cuMemAlloc_v2), &parameters);
    process.driver_call(CBID(cuMemAlloc_v2), &parameters, CUDA_SUCCESS, 1, true);
    process.driver_call(CBID(cuMemAlloc_v2), &parameters, CUDA_ERROR_OUT_OF_MEMORY, 1, true);
    cuMemFree_v2_params freed = {0x9000};
    process.driver_call(CBID(cuMemFree_v2), &freed, CUDA_SUCCESS, 1, true);
  });
  auto allocations = ALL(log, driver_allocation);
  ASSERT_EQ(allocations.size(), 2u);
  EXPECT_EQ(log.name(allocations[0].owner), program_invocation_short_name);
  EXPECT_EQ(log.name(allocations[1].owner), "libcaller.so");
  EXPECT_EQ(log.name(ALL(log, driver_failure).at(0).owner), "libcaller.so");
  EXPECT_EQ(log.name(ALL(log, driver_free).at(0).owner), "libcaller.so");
}

TEST(SourceCuptiCallback, FailedAllocationsAreFailuresAndFailedFreesAreNothing) {
  Recording log = record({}, [] {
    CuptiProcess process;
    allocate(process, 0, 1ull << 40, CUDA_ERROR_OUT_OF_MEMORY);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {};
    cuMemCreate_params create = {&handle, 2u << 20, &properties, 0};
    process.driver_call(CBID(cuMemCreate), &create, CUDA_ERROR_NOT_PERMITTED);
    size_t pitch = 0xdeadbeef; /* not written by a call that failed */
    CUdeviceptr address;
    cuMemAllocPitch_v2_params pitched = {&address, &pitch, 100, 7, 4};
    process.driver_call(CBID(cuMemAllocPitch_v2), &pitched, CUDA_ERROR_OUT_OF_MEMORY);
    cuMemFree_v2_params parameters = {0x7000};
    process.driver_call(CBID(cuMemFree_v2), &parameters, CUDA_ERROR_INVALID_VALUE);
    parameters.dptr = 0;
    process.driver_call(CBID(cuMemFree_v2), &parameters); /* freeing NULL does nothing */
  });
  EXPECT_TRUE(ALL(log, driver_allocation).empty());
  EXPECT_TRUE(ALL(log, driver_free).empty());
  auto failures = ALL(log, driver_failure);
  ASSERT_EQ(failures.size(), 3u);
  EXPECT_EQ(failures[0].bytes, 1ull << 40);
  EXPECT_EQ(failures[0].result, 2u);
  EXPECT_EQ(log.name(failures[0].api), "cuMemAlloc_v2");
  EXPECT_EQ(failures[1].bytes, 2u << 20);
  EXPECT_EQ(failures[1].result, 800u);
  EXPECT_EQ(failures[2].bytes, 700u);
}

/* ---- every call of the table ---- */

namespace {

enum Effect { ALLOCATES, FREES, IMPORTS };

struct Case {
  uint32_t cbid;
  std::string name;
  std::vector<uint8_t> parameters;
  Effect effect;
  uint64_t address, bytes;
  uint32_t kind;
  uint64_t stream;
};

const uint64_t ADDRESS = 0x7f1122334400, NARROW = 0x11223344, STREAM = 0x5500;

template <class Parameters>
Case make(uint32_t cbid, const char *name, Parameters parameters, Effect effect, uint64_t bytes, uint32_t kind,
          uint64_t stream = 0, uint64_t address = ADDRESS) {
  const uint8_t *raw = reinterpret_cast<const uint8_t *>(&parameters);
  return {cbid, name, std::vector<uint8_t>(raw, raw + sizeof(parameters)), effect, address, bytes, kind, stream};
}

std::vector<Case> every_call() {
  static CUdeviceptr pointer = ADDRESS;
  static CUdeviceptr_v1 narrow = NARROW;
  static void *host = reinterpret_cast<void *>(ADDRESS);
  static CUmemGenericAllocationHandle handle = ADDRESS;
  static size_t pitch = 512;
  static unsigned pitch_v1 = 256;
  static CUarray array = reinterpret_cast<CUarray>(ADDRESS);
  static CUmipmappedArray mipmapped = reinterpret_cast<CUmipmappedArray>(ADDRESS);
  static CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(ADDRESS);
  static CUexternalMemory external = reinterpret_cast<CUexternalMemory>(ADDRESS);
  static CUmemAllocationProp properties = {};
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  static CUDA_ARRAY_DESCRIPTOR flat = {10, 20, CU_AD_FORMAT_HALF, 4};
  static CUDA_ARRAY3D_DESCRIPTOR cube = {8, 4, 2, CU_AD_FORMAT_FLOAT, 1, 0};
  static CUDA_EXTERNAL_MEMORY_HANDLE_DESC external_description = {};
  external_description.size = 900;
  static CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer_description = {};
  buffer_description.size = 800;
  static CUmulticastObjectProp multicast = {};
  multicast.size = 700;
  CUstream stream = reinterpret_cast<CUstream>(STREAM);
  CUipcMemHandle ipc = {};
  const uint32_t unknown = SL_MEMORY_UNKNOWN, device = SL_MEMORY_DEVICE, pinned = SL_MEMORY_PINNED;
#define CALL(call) CUPTI_DRIVER_TRACE_CBID_##call, #call /* directly: cuda.h renames cuMemAlloc and others */
  return {
      make(CALL(cuMemAlloc), cuMemAlloc_params{&narrow, 11}, ALLOCATES, 11, device, 0, NARROW),
      make(CALL(cuMemAlloc_v2), cuMemAlloc_v2_params{&pointer, 1ull << 35}, ALLOCATES, 1ull << 35, device),
      make(CALL(cuMemAllocPitch), cuMemAllocPitch_params{&narrow, &pitch_v1, 100, 3, 4}, ALLOCATES, 768, device, 0,
           NARROW),
      make(CALL(cuMemAllocPitch_v2), cuMemAllocPitch_v2_params{&pointer, &pitch, 100, 3, 4}, ALLOCATES, 1536, device),
      make(CALL(cuMemAllocManaged), cuMemAllocManaged_params{&pointer, 13, 1}, ALLOCATES, 13, SL_MEMORY_MANAGED),
      make(CALL(cuMemFree), cuMemFree_params{NARROW}, FREES, 0, 0, 0, NARROW),
      make(CALL(cuMemFree_v2), cuMemFree_v2_params{ADDRESS}, FREES, 0, 0),
      make(CALL(cuMemAllocHost), cuMemAllocHost_params{&host, 14}, ALLOCATES, 14, pinned),
      make(CALL(cuMemAllocHost_v2), cuMemAllocHost_v2_params{&host, 15}, ALLOCATES, 15, pinned),
      make(CALL(cuMemHostAlloc), cuMemHostAlloc_params{&host, 16, 1}, ALLOCATES, 16, pinned),
      make(CALL(cuMemHostAlloc_v2), cuMemHostAlloc_params{&host, 17, 1}, ALLOCATES, 17, pinned),
      make(CALL(cuMemHostRegister), cuMemHostRegister_params{host, 18, 1}, ALLOCATES, 18, pinned),
      make(CALL(cuMemHostRegister_v2), cuMemHostRegister_v2_params{host, 19, 1}, ALLOCATES, 19, pinned),
      make(CALL(cuMemFreeHost), cuMemFreeHost_params{host}, FREES, 0, 0),
      make(CALL(cuMemHostUnregister), cuMemHostUnregister_params{host}, FREES, 0, 0),
      make(CALL(cuMemAllocAsync), cuMemAllocAsync_params{&pointer, 20, stream}, ALLOCATES, 20, device, STREAM),
      make(CALL(cuMemAllocAsync_ptsz), cuMemAllocAsync_ptsz_params{&pointer, 21, stream}, ALLOCATES, 21, device,
           STREAM),
      make(CALL(cuMemAllocFromPoolAsync), cuMemAllocFromPoolAsync_params{&pointer, 22, pool, stream}, ALLOCATES, 22,
           device, STREAM),
      make(CALL(cuMemAllocFromPoolAsync_ptsz), cuMemAllocFromPoolAsync_ptsz_params{&pointer, 23, pool, stream},
           ALLOCATES, 23, device, STREAM),
      make(CALL(cuMemFreeAsync), cuMemFreeAsync_params{ADDRESS, stream}, FREES, 0, 0),
      make(CALL(cuMemFreeAsync_ptsz), cuMemFreeAsync_ptsz_params{ADDRESS, stream}, FREES, 0, 0),
      make(CALL(cuMemPoolCreate), cuMemPoolCreate_params{&pool, nullptr}, ALLOCATES, 0, unknown),
      make(CALL(cuMemPoolDestroy), cuMemPoolDestroy_params{pool}, FREES, 0, 0),
      make(CALL(cuMemCreate), cuMemCreate_params{&handle, 24, &properties, 0}, ALLOCATES, 24, unknown),
      make(CALL(cuMemRelease), cuMemRelease_params{ADDRESS}, FREES, 0, 0),
      make(CALL(cuMemMap), cuMemMap_params{ADDRESS, 25, 0, 1, 0}, ALLOCATES, 25, device),
      make(CALL(cuMemUnmap), cuMemUnmap_params{ADDRESS, 26}, FREES, 26, 0),
      make(CALL(cuMemImportFromShareableHandle),
           cuMemImportFromShareableHandle_params{&handle, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}, IMPORTS,
           0, 0),
      make(CALL(cuMulticastCreate), cuMulticastCreate_params{&handle, &multicast}, IMPORTS, 700, 0),
      make(CALL(cuIpcOpenMemHandle), cuIpcOpenMemHandle_params{&pointer, ipc, 1}, ALLOCATES, 0, unknown),
      make(CALL(cuIpcOpenMemHandle_v2), cuIpcOpenMemHandle_v2_params{&pointer, ipc, 1}, ALLOCATES, 0, unknown),
      make(CALL(cuIpcCloseMemHandle), cuIpcCloseMemHandle_params{ADDRESS}, FREES, 0, 0),
      make(CALL(cuImportExternalMemory), cuImportExternalMemory_params{&external, &external_description}, ALLOCATES,
           900, unknown),
      make(CALL(cuExternalMemoryGetMappedBuffer),
           cuExternalMemoryGetMappedBuffer_params{&pointer, external, &buffer_description}, ALLOCATES, 800, unknown),
      make(CALL(cuDestroyExternalMemory), cuDestroyExternalMemory_params{external}, FREES, 0, 0),
      make(CALL(cuArrayCreate_v2), cuArrayCreate_v2_params{&array, &flat}, ALLOCATES, 1600, SL_MEMORY_ARRAY),
      make(CALL(cuArray3DCreate_v2), cuArray3DCreate_v2_params{&array, &cube}, ALLOCATES, 256, SL_MEMORY_ARRAY),
      make(CALL(cuArrayDestroy), cuArrayDestroy_params{array}, FREES, 0, 0),
      /* levels of 8 × 4 × 2, 4 × 2 × 1, 2 × 1 × 1 and 1 × 1 × 1 floats */
      make(CALL(cuMipmappedArrayCreate), cuMipmappedArrayCreate_params{&mipmapped, &cube, 4}, ALLOCATES, 300,
           SL_MEMORY_ARRAY),
      make(CALL(cuMipmappedArrayDestroy), cuMipmappedArrayDestroy_params{mipmapped}, FREES, 0, 0),
  };
}

} // namespace

TEST(SourceCuptiCallback, ExactlyTheseCallsAreEnabled) {
  record({}, [] {
    CuptiProcess process;
    std::set<uint32_t> expected;
    for (const Case &call : every_call())
      expected.insert(call.cbid);
    expected.insert(CBID(cuLaunchKernelEx)); /* NCCL's launches; cuLaunchKernel, which everybody uses, is not here */
    expected.insert(CBID(cuLaunchKernelEx_ptsz));
    for (uint32_t cbid = 0; cbid < FAKE_CBIDS; cbid++)
      EXPECT_EQ(process.cupti->driver_enabled[cbid] != 0, expected.count(cbid) != 0) << "callback " << cbid;
    std::set<uint32_t> resources = {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
                                    CUPTI_CBID_RESOURCE_MODULE_LOADED, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING};
    for (uint32_t cbid = 0; cbid < FAKE_KINDS; cbid++)
      EXPECT_EQ(process.cupti->resource_enabled[cbid] != 0, resources.count(cbid) != 0) << "resource " << cbid;
    EXPECT_EQ(process.cupti->others_enabled, 0); /* no whole domain: that costs every launch */
  });
}

TEST(SourceCuptiCallback, EveryCallsParametersAreReadFromItsOwnStruct) {
  for (const Case &call : every_call()) {
    SCOPED_TRACE(call.name);
    Recording log = record({}, [&] {
      CuptiProcess process;
      process.driver_call(call.cbid, call.parameters.data());
    });
    auto allocations = ALL(log, driver_allocation);
    auto frees = ALL(log, driver_free);
    EXPECT_EQ(allocations.size(), call.effect == ALLOCATES ? 1u : 0u);
    EXPECT_EQ(frees.size(), call.effect == FREES ? 1u : 0u);
    for (const auto &event : allocations) {
      EXPECT_EQ(event.address, call.address);
      EXPECT_EQ(event.bytes, call.bytes);
      EXPECT_EQ(event.kind, call.kind);
      EXPECT_EQ(event.stream, call.stream);
      EXPECT_EQ(log.name(event.api), call.name);
    }
    for (const auto &event : frees) {
      EXPECT_EQ(event.address, call.address);
      EXPECT_EQ(event.bytes, call.bytes);
      EXPECT_EQ(log.name(event.api), call.name);
    }
  }
}

TEST(SourceCuptiCallback, EveryCallThatFailsIsAFailureUnlessItFrees) {
  Recording log = record({}, [&] {
    CuptiProcess process;
    for (const Case &call : every_call())
      process.driver_call(call.cbid, call.parameters.data(), CUDA_ERROR_INVALID_VALUE);
  });
  std::multiset<std::string> expected, failed;
  for (const Case &call : every_call())
    if (call.effect != FREES)
      expected.insert(call.name);
  for (const auto &failure : ALL(log, driver_failure))
    failed.insert(log.name(failure.api));
  EXPECT_EQ(failed, expected);
  EXPECT_TRUE(ALL(log, driver_allocation).empty());
  EXPECT_TRUE(ALL(log, driver_free).empty());
}

TEST(SourceCuptiCallback, OutputsThatTheCallerDidNotWantAreZero) {
  Recording log = record({}, [] {
    CuptiProcess process;
    cuMemAlloc_v2_params parameters = {nullptr, 32};
    process.driver_call(CBID(cuMemAlloc_v2), &parameters);
    cuArrayCreate_v2_params array = {nullptr, nullptr};
    process.driver_call(CBID(cuArrayCreate_v2), &array);
    process.driver_call(CBID(cuMemAlloc_v2), nullptr);
  });
  auto allocations = ALL(log, driver_allocation);
  ASSERT_EQ(allocations.size(), 2u);
  EXPECT_EQ(allocations[0].address, 0u);
  EXPECT_EQ(allocations[1].bytes, 0u);
}

/* ---- whose memory a mapping is ---- */

static void create(CuptiProcess &process, CUmemGenericAllocationHandle handle, CUmemLocationType type, int id) {
  CUmemAllocationProp properties = {};
  properties.location.type = type;
  properties.location.id = id;
  cuMemCreate_params parameters = {&handle, 64, &properties, 0};
  process.driver_call(CBID(cuMemCreate), &parameters);
}

static void map(CuptiProcess &process, CUdeviceptr address, CUmemGenericAllocationHandle handle) {
  cuMemMap_params parameters = {address, 64, 0, handle, 0};
  process.driver_call(CBID(cuMemMap), &parameters);
}

static void import(CuptiProcess &process, CUmemGenericAllocationHandle handle) {
  cuMemImportFromShareableHandle_params parameters = {&handle, nullptr, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  process.driver_call(CBID(cuMemImportFromShareableHandle), &parameters);
}

TEST(SourceCuptiCallback, MappingsAreOfTheMemoryBehindTheirHandle) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) { p.cupti->device = 1; });
    create(process, 10, CU_MEM_LOCATION_TYPE_DEVICE, 1);
    create(process, 11, CU_MEM_LOCATION_TYPE_DEVICE, 2);
    create(process, 12, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    import(process, 13);
    map(process, 0x1000, 10);
    map(process, 0x2000, 11);
    map(process, 0x3000, 12);
    map(process, 0x4000, 13);
    cuMemRelease_params release = {13};
    process.driver_call(CBID(cuMemRelease), &release);
    create(process, 13, CU_MEM_LOCATION_TYPE_DEVICE, 1); /* the driver gives the value out again */
    map(process, 0x5000, 13);
  });
  std::map<uint64_t, std::pair<uint32_t, uint32_t>> mappings;
  for (const auto &event : ALL(log, driver_allocation))
    if (log.name(event.api) == "cuMemMap")
      mappings[event.address] = {event.kind, event.device};
  ASSERT_EQ(mappings.size(), 5u);
  const uint32_t device = SL_MEMORY_DEVICE, pinned = SL_MEMORY_PINNED, unknown = SL_MEMORY_UNKNOWN;
  EXPECT_EQ(mappings[0x1000], std::make_pair(device, 1u));
  EXPECT_EQ(mappings[0x2000], std::make_pair(device, 2u));
  EXPECT_EQ(mappings[0x3000].first, pinned);
  EXPECT_EQ(mappings[0x4000].first, unknown);
  EXPECT_EQ(mappings[0x5000], std::make_pair(device, 1u));
}

TEST(SourceCuptiCallback, MoreForeignHandlesThanFitForgetTheOldest) {
  Recording log = record({}, [] {
    CuptiProcess process;
    for (uint64_t handle = 1; handle <= 1100; handle++)
      import(process, handle);
    map(process, 0x1000, 1);
    map(process, 0x2000, 1100);
  });
  auto allocations = ALL(log, driver_allocation);
  ASSERT_EQ(allocations.size(), 2u);
  EXPECT_EQ(allocations[0].kind, static_cast<uint32_t>(SL_MEMORY_DEVICE));
  EXPECT_EQ(allocations[1].kind, static_cast<uint32_t>(SL_MEMORY_UNKNOWN));
}

TEST(SourceCuptiCallback, ReleasedHandlesMakeRoom) {
  Recording log = record({}, [] {
    CuptiProcess process;
    import(process, 1);
    for (uint64_t handle = 2; handle <= 1100; handle++) {
      import(process, handle);
      cuMemRelease_params release = {handle};
      process.driver_call(CBID(cuMemRelease), &release);
    }
    map(process, 0x1000, 1);
  });
  auto allocations = ALL(log, driver_allocation);
  ASSERT_EQ(allocations.size(), 1u);
  EXPECT_EQ(allocations[0].kind, static_cast<uint32_t>(SL_MEMORY_UNKNOWN));
}

/* ---- contexts and modules ---- */

TEST(SourceCuptiCallback, ContextsAndModulesComeAndGo) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) { p.cupti->device = 2; });
    CUpti_ModuleResourceData module = {};
    module.moduleId = 5;
    module.cubinSize = 1234;
    process.resource(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, nullptr, 9);
    process.resource(CUPTI_CBID_RESOURCE_MODULE_LOADED, &module, 9);
    process.resource(CUPTI_CBID_RESOURCE_MODULE_LOADED, nullptr, 9);
    process.resource(CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING, &module, 9);
    process.resource(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, nullptr, 9);
  });
  auto contexts = ALL(log, context);
  ASSERT_EQ(contexts.size(), 2u);
  EXPECT_EQ(contexts[0].context, 9u);
  EXPECT_EQ(contexts[0].device, 2);
  EXPECT_EQ(contexts[0].created, 1);
  EXPECT_EQ(contexts[1].created, 0);
  auto modules = ALL(log, gpu_module);
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(modules[0].bytes, 1234u);
  EXPECT_EQ(modules[0].module, 5u);
  EXPECT_EQ(modules[0].loaded, 1);
  EXPECT_EQ(modules[1].loaded, 0);
}

TEST(SourceCuptiCallback, EachContextHasItsDevice) {
  Recording log = record({}, [] {
    CuptiProcess process;
    process.cupti->device = 0;
    allocate(process, 0x1000, 1, CUDA_SUCCESS, 1);
    process.cupti->device = 1;
    allocate(process, 0x2000, 1, CUDA_SUCCESS, 65); /* in the same place of the cache */
    allocate(process, 0x3000, 1, CUDA_SUCCESS, 0);  /* no context: the latest */
    process.cupti->device = 0;
    allocate(process, 0x4000, 1, CUDA_SUCCESS, 1);
  });
  std::vector<uint32_t> devices;
  for (const auto &allocation : ALL(log, driver_allocation))
    devices.push_back(allocation.device);
  EXPECT_EQ(devices, (std::vector<uint32_t>{0, 1, 1, 0}));
}

/* ---- when CUPTI can't be had ---- */

TEST(SourceCuptiCallback, WithoutADriverItIsOffAndNothingIsLeft) {
  Recording log = record({{"SHARDLEDGER_LOG", "info"}}, [] {
    testing::internal::CaptureStderr();
    CuptiProcess process([](CuptiProcess &p) { p.cupti->subscribe = CUPTI_ERROR_UNKNOWN; });
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(process.cupti->buffers_registered, 0);
    EXPECT_EQ(process.cupti_release(), -ENODEV);
    EXPECT_EQ(process.cupti_reacquire(), -ENODEV);
  });
  EXPECT_TRUE(log.events.empty());
}

TEST(SourceCuptiCallback, ATakenSeatIsReportedWithItsHolderAndTheRestGoesOn) {
  Recording log = record({{"SHARDLEDGER_LOG", "info"}}, [] {
    testing::internal::CaptureStderr();
    CuptiProcess process([](CuptiProcess &p) {
      p.cupti->subscribe = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
      p.cupti->holder = "Nsight Systems";
    });
    EXPECT_NE(testing::internal::GetCapturedStderr().find("Nsight Systems"), std::string::npos);
    EXPECT_EQ(process.cupti->buffers_registered, 0); /* recording activity too would spoil both tools' records */
    process.cuda->context = 1;
    process.device_sample();
  });
  EXPECT_EQ(log.state("cupti_callback"), "failed: Nsight Systems uses CUPTI, which serves one tool per process");
  EXPECT_EQ(log.state("cupti_activity").substr(0, 4), "off:");
  EXPECT_EQ(ALL(log, device_sample).size(), 1u);
}

TEST(SourceCuptiCallback, AHolderWithoutANameIsAnotherTool) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) {
      p.cupti->subscribe = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
      p.cupti->holder = "CUPTI for <not provided>"; /* what it says of PyTorch's profiler */
    });
    process.cuda->context = 1;
    process.device_sample();
  });
  EXPECT_EQ(log.state("cupti_callback"), "failed: another tool uses CUPTI, which serves one tool per process");
}

TEST(SourceCuptiCallback, AHardErrorWhileEnablingGivesTheSeatBack) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) { p.cupti->enable_callback = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES; });
    EXPECT_EQ(process.cupti->subscribed, 0);
    EXPECT_EQ(process.cupti->buffers_registered, 0);
    process.cuda->context = 1;
    process.device_sample();
  });
  EXPECT_EQ(log.state("cupti_callback"), "failed: CUPTI refused: CUPTI_ERROR_OF_THE_FAKE (35)");
}

TEST(SourceCuptiCallback, ACallThatTheLibraryDoesNotKnowIsLeftOut) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) { p.cupti->unknown_cbid = CBID(cuMulticastCreate); });
    EXPECT_EQ(process.cupti->subscribed, 1);
    allocate(process, 0x1000, 1);
  });
  EXPECT_EQ(ALL(log, driver_allocation).size(), 1u);
}

TEST(SourceCuptiCallback, AnOlderLibraryWithoutTheNewFunctionsIsUsed) {
  Recording log = record({}, [] {
    CuptiProcess process([](CuptiProcess &p) { p.cupti->version = 18; }, FAKE_CUPTI_OLD);
    EXPECT_EQ(process.cupti->subscribed, 1);
    allocate(process, 0x1000, 1);
  });
  EXPECT_EQ(ALL(log, driver_allocation).size(), 1u);
}

TEST(SourceCuptiCallback, OffMeansThatCuptiIsNotTouched) {
  Recording log = record({{"SHARDLEDGER_CUPTI", "off"}}, [] {
    CuptiProcess process;
    EXPECT_EQ(process.cupti->subscribed, 0);
    EXPECT_EQ(process.cupti->buffers_registered, 0);
    process.cuda->context = 1;
    process.device_sample();
  });
  EXPECT_EQ(log.state("cupti_callback"), "off: SHARDLEDGER_CUPTI=off");
}

TEST(SourceCuptiCallback, UnderNsightComputeCuptiIsNotTouched) {
  for (const char *variable :
       {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "NV_NSIGHT_INJECTION_PORT_BASE", "NV_COMPUTE_PROFILER_PERFWORKS_DIR"}) {
    Recording log = record({{variable, "uds"}}, [] {
      CuptiProcess process;
      EXPECT_EQ(process.cupti->subscribed, 0);
      EXPECT_EQ(process.cupti->buffers_registered, 0);
      EXPECT_EQ(process.cupti_reacquire(), -ENODEV) << "torch.profiler has ended";
      EXPECT_EQ(process.cupti->subscribed, 0);
      process.cuda->context = 1;
      process.device_sample();
    });
    EXPECT_EQ(log.state("cupti_callback"), "off: this process runs under Nsight Compute (ncu), which CUPTI is left to")
        << variable;
    EXPECT_EQ(ALL(log, device_sample).size(), 1u) << "the rest is recorded";
  }
}

TEST(SourceCuptiCallback, APauseAndAForkedChildRecordNothing) {
  Recording log = record({}, [] {
    CuptiProcess process;
    allocate(process, 0x1000, 1);
    process.pause();
    allocate(process, 0x2000, 1);
    process.resume();
    allocate(process, 0x3000, 1);
    pid_t child = fork();
    if (child == 0) {
      allocate(process, 0x4000, 1);
      int flushes = fake_cupti_get(&process.cupti->flushes);
      bool quiet = process.cupti_release() == -ENODEV && fake_cupti_get(&process.cupti->flushes) == flushes;
      _exit(quiet ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  });
  std::vector<uint64_t> addresses;
  for (const auto &allocation : ALL(log, driver_allocation))
    addresses.push_back(allocation.address);
  EXPECT_EQ(addresses, (std::vector<uint64_t>{0x1000, 0x3000}));
}

TEST(SourceCuptiCallback, TheSeatIsGivenUpAtTheEnd) {
  Recording log = record({}, [] {
    static CuptiProcess process;
    process.cupti->at_exit = [] {
      if (fake_cupti_get(&process.cupti->subscribed) ||
          fake_cupti_get(&process.cupti->active[CUPTI_ACTIVITY_KIND_MEMCPY]))
        _exit(1);
    };
    allocate(process, 0x1000, 1);
  });
  EXPECT_EQ(log.state("cupti_callback"), "on: ");
  EXPECT_EQ(log.of(SL_EVENT_process_end).size(), 1u);
}

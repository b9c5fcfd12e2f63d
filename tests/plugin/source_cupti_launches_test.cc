/* Launches of kernels, of NCCL and of others, played by a fake libcupti against the real plugin. */
#include "plugin/cupti_process.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#define CBID(call) CUPTI_DRIVER_TRACE_CBID_##call

static void launch(CuptiProcess &process, const char *kernel, uint32_t correlation, CUresult result = CUDA_SUCCESS,
                   uint32_t cbid = CBID(cuLaunchKernelEx)) {
  CUpti_CallbackData data = {};
  data.functionReturnValue = &result;
  data.symbolName = kernel;
  data.correlationId = correlation;
  for (CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    process.play(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
  }
}

TEST(SourceCuptiLaunches, LaunchesOfNcclAreRecordedWithTheirCorrelation) {
  Recording log = record({}, [] {
    CuptiProcess process;
    launch(process, "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE", 51);
    launch(process, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 52, CUDA_SUCCESS,
           CBID(cuLaunchKernelEx_ptsz));
    launch(process, "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE", 53,
           CUDA_ERROR_OUT_OF_MEMORY);
    launch(process, "_ZN2at6native29vectorized_elementwise_kernelE_nccl", 54);
    launch(process, "_Z", 55);
    launch(process, "", 56);
    launch(process, nullptr, 57);
  });
  auto launches = ALL(log, launch);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].correlation, 51u);
  EXPECT_EQ(launches[1].correlation, 52u);
}

TEST(SourceCuptiLaunches, WithoutKernelTimesLaunchesStayUntouched) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "none"}}, [] {
    CuptiProcess process;
    EXPECT_EQ(process.cupti->driver_enabled[CBID(cuLaunchKernelEx)], 0);
    launch(process, "ncclDevKernel_AllGather_RING_LL(x)", 51);
  });
  EXPECT_TRUE(ALL(log, launch).empty());
}

static int outside_of_operators() {
  return 0;
}
static int inside_of_one() {
  return 1;
}

TEST(SourceCuptiLaunches, WhileUsesAreFollowedEachLaunchThatNoOperatorMakesIsRecorded) {
  Recording log = record({{"SHARDLEDGER_KERNELS", "none"}}, [] {
    CuptiProcess process;
    process.use_watch(1, outside_of_operators);
    for (uint32_t cbid : {CBID(cuLaunchKernel), CBID(cuLaunchKernelEx), CBID(cuGraphLaunch)}) {
      EXPECT_NE(process.cupti->driver_enabled[cbid], 0);
      launch(process, "triton_poi_fused_add_0", 1, CUDA_SUCCESS, cbid);
    }
    launch(process, "ncclDevKernel_AllGather_RING_LL(x)", 2); /* NCCL's memory is known by its calls */
    process.use_watch(1, inside_of_one);
    launch(process, "vectorized_elementwise_kernel", 3, CUDA_SUCCESS, CBID(cuLaunchKernel));
    process.use_watch(0, nullptr);
    for (uint32_t cbid : {CBID(cuLaunchKernel), CBID(cuLaunchKernelEx), CBID(cuGraphLaunch)})
      EXPECT_EQ(process.cupti->driver_enabled[cbid], 0);
    launch(process, "triton_poi_fused_add_0", 4, CUDA_SUCCESS, CBID(cuLaunchKernel));
  });
  std::vector<uint32_t> states;
  for (const auto &event : ALL(log, use_watch))
    states.push_back(event.state);
  EXPECT_EQ(states, (std::vector<uint32_t>{SL_USES_FOLLOWED, SL_USES_HIDDEN, SL_USES_HIDDEN, SL_USES_HIDDEN,
                                           SL_USES_FOLLOWED, SL_USES_OFF}));
}

TEST(SourceCuptiLaunches, WhereLaunchesCannotBeSeenUsesAreFollowedPartly) {
  Recording log = record({{"SHARDLEDGER_CUPTI", "off"}}, [] {
    CuptiProcess process;
    process.use_watch(1, outside_of_operators);
    process.use(0x1000, 7, 500);
  });
  auto watched = ALL(log, use_watch);
  ASSERT_EQ(watched.size(), 1u);
  EXPECT_EQ(watched[0].state, uint32_t{SL_USES_PARTLY});
  auto used = ALL(log, use);
  ASSERT_EQ(used.size(), 1u);
  EXPECT_EQ(used[0].address, 0x1000u);
  EXPECT_EQ(used[0].lasted_ns, 500u);
}

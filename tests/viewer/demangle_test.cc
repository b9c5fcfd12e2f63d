/* Kernels' names as people read them. */
#include <gtest/gtest.h>
#include <string>

extern "C" {
#include "exports/demangle.h"
}

namespace {

std::string owned(char *text) {
  std::string copy = text ? text : "(null)";
  free(text);
  return copy;
}

TEST(KernelNames, AreWrittenAsInTheSource) {
  EXPECT_EQ(owned(sl_demangle("_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE")),
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  EXPECT_EQ(owned(sl_demangle("ampere_sgemm_128x64_tn")), "ampere_sgemm_128x64_tn");
  EXPECT_EQ(owned(sl_demangle("_Zbroken")), "_Zbroken");
  EXPECT_EQ(owned(sl_demangle("")), "");
}

TEST(KernelNames, ShortOnesHaveNoNamespacesArgumentsAndParameters) {
  EXPECT_EQ(owned(sl_short_name("void at::native::vectorized_elementwise_kernel<4, at::F<float>, (int)2>(int, at::F)")),
            "vectorized_elementwise_kernel");
  EXPECT_EQ(owned(sl_short_name("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")),
            "ncclDevKernel_AllGather_RING_LL");
  EXPECT_EQ(owned(sl_short_name("void (anonymous namespace)::softmax_warp<float>(float*)")), "softmax_warp");
  EXPECT_EQ(owned(sl_short_name("triton_poi_fused_0")), "triton_poi_fused_0");
  EXPECT_EQ(owned(sl_short_name("")), "");
}

} // namespace

/* Other tools that are there already: theirs goes on working, and what they hold is named. */
#include "fakes/nvtx_library.h"
#include "plugin/cupti_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace {

TEST(BesideOthers, AnotherInjectionIsInitialisedFirstAndKeepsCupti) {
  const Recording log = record({{"SHARDLEDGER_OTHER_INJECTION", OTHER_INJECTION}}, [] {
    CuptiProcess process;
    EXPECT_STREQ(getenv("OTHER_INJECTION"), "first");
    EXPECT_STREQ(process.cupti->subscriber, "shardledger") << "it was asked for, and refused";
    process.device_sample(); /* anything that opens the log */
    reinterpret_cast<void (*)(int, int, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t)>(
        dlsym(dlopen(PLUGIN, RTLD_NOW), "sl_allocator_event"))(0, 0, 0x1000, 64, 0, 0, 0);
  });
  EXPECT_EQ(log.state("cupti_callback").rfind("failed", 0), 0u) << log.state("cupti_callback");
  EXPECT_EQ(ALL(log, allocator).size(), 1u) << "the rest is recorded";
}

TEST(BesideOthers, AnInjectionThatCannotBeLoadedCostsNothing) {
  const Recording log = record({{"SHARDLEDGER_OTHER_INJECTION", "/nowhere/tool.so"}}, [] {
    CuptiProcess process;
    EXPECT_TRUE(process.cupti->subscribed);
  });
  EXPECT_EQ(log.status, 0);
}

TEST(BesideOthers, AToolThatNvtxIsSetToStays) {
  record({{"NVTX_INJECTION64_PATH", "/opt/other/tool.so"}}, [] {
    CuptiProcess process;
    EXPECT_STREQ(getenv("NVTX_INJECTION64_PATH"), "/opt/other/tool.so");
  });
  record({}, [] {
    CuptiProcess process;
    char *real = realpath(PLUGIN, nullptr);
    EXPECT_STREQ(getenv("NVTX_INJECTION64_PATH"), real);
    free(real);
  });
}

} // namespace

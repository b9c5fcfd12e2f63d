#include "plugin/cupti_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

static void *open(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    exit(1);
  }
  return library;
}

template <class Function> static void look_up(void *library, const char *name, Function **out) {
  *out = reinterpret_cast<Function *>(dlsym(library, name));
  ASSERT_NE(*out, nullptr) << name;
}

CuptiProcess::CuptiProcess(const std::function<void(CuptiProcess &)> &before_attach, const char *cupti_library) {
  void *fake = open(cupti_library);
  struct fake_cupti *(*get_cupti)();
  look_up(fake, "fake_cupti", &get_cupti);
  look_up(fake, "fake_cupti_play", &play);
  look_up(fake, "fake_cupti_record", &add_record);
  look_up(fake, "fake_cupti_request", &request_buffer);
  look_up(fake, "fake_cupti_complete", &complete_buffer);
  cupti = get_cupti();
  void *driver = open(FAKE_CUDA);
  struct fake_cuda *(*get_cuda)();
  look_up(driver, "fake_cuda", &get_cuda);
  cuda = get_cuda();
  look_up(open(CALLER_LIBRARY), "play_from_library", &play_from_library);
  if (before_attach)
    before_attach(*this);
  void *plugin = open(PLUGIN);
  look_up(plugin, "sl_device_sample", &device_sample);
  look_up(plugin, "sl_cupti_release", &cupti_release);
  look_up(plugin, "sl_cupti_reacquire", &cupti_reacquire);
  look_up(plugin, "sl_use_watch", &use_watch);
  look_up(plugin, "sl_use", &use);
  look_up(plugin, "sl_pause", &pause);
  look_up(plugin, "sl_resume", &resume);
  int (*initialize)();
  look_up(plugin, "InitializeInjection", &initialize);
  EXPECT_EQ(initialize(), 1);
}

void CuptiProcess::driver_call(uint32_t cbid, const void *parameters, CUresult result, uintptr_t context,
                               bool from_library) {
  CUpti_CallbackData data = {};
  data.functionName = "the table has its own names";
  data.functionParams = parameters;
  data.functionReturnValue = &result;
  data.context = reinterpret_cast<CUcontext>(context);
  data.contextUid = static_cast<uint32_t>(context);
  data.callbackSite = CUPTI_API_ENTER;
  play(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
  data.callbackSite = CUPTI_API_EXIT;
  if (from_library)
    play_from_library(play, CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
  else
    play(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
}

void CuptiProcess::resource(uint32_t cbid, void *descriptor, uintptr_t context) {
  CUpti_ResourceData data = {};
  data.context = reinterpret_cast<CUcontext>(context);
  data.resourceDescriptor = descriptor;
  play(CUPTI_CB_DOMAIN_RESOURCE, cbid, &data);
}

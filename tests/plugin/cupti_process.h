/* A process with the fake CUPTI, the fake driver and the real plugin in it: what source_cupti_*_test.cc play with. */
#ifndef SHARDLEDGER_TESTS_CUPTI_PROCESS_H
#define SHARDLEDGER_TESTS_CUPTI_PROCESS_H

#include "fakes/fake_cuda.h"
#include "fakes/fake_cupti.h"
#include "plugin/recorded.h"

/* Inside record(): loads the fakes, then calls attach for anything to be set up, then the plugin's InitializeInjection.
 */
class CuptiProcess {
public:
  explicit CuptiProcess(const std::function<void(CuptiProcess &)> &before_attach = nullptr,
                        const char *cupti_library = FAKE_CUPTI);

  struct fake_cupti *cupti;
  struct fake_cuda *cuda;
  decltype(&fake_cupti_play) play;
  decltype(&fake_cupti_record) add_record;
  decltype(&fake_cupti_request) request_buffer;
  decltype(&fake_cupti_complete) complete_buffer;
  void (*device_sample)();
  int (*cupti_release)();
  int (*cupti_reacquire)();
  void (*use_watch)(int, int (*)());
  void (*use)(uint64_t, uint32_t, uint32_t);
  void (*pause)();
  void (*resume)();
  /* Plays a callback with libcaller.so's frame on the stack: caller_library.c. */
  void (*play_from_library)(decltype(&fake_cupti_play) play, CUpti_CallbackDomain domain, uint32_t cbid,
                            const void *data);

  /* A driver call as CUPTI reports it: on entry and on return, with its parameters' struct. */
  void driver_call(uint32_t cbid, const void *parameters, CUresult result = CUDA_SUCCESS, uintptr_t context = 1,
                   bool from_library = false);
  void resource(uint32_t cbid, void *descriptor = nullptr, uintptr_t context = 1);
};

#endif

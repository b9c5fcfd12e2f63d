/*
 * What CUPTI hands over, from a CUPTI that nobody wrote yet: buffers of records of unknown kinds and sizes, cut off
 * anywhere, and callbacks of every id with parameters of any value. Pointers are the exception: CUPTI's are valid.
 */
#include "fuzz.h"

#include "fakes/fake_cupti.h"

#include <cstdlib>
#include <memory>
#include <sanitizer/asan_interface.h>

extern "C" int InitializeInjection(void);

static struct fake_cupti *fake;

/* What a target poisons is unmapped by the plugin: whoever gets the place next must find it clean. */
extern "C" int __real_munmap(void *address, size_t bytes);
extern "C" int __wrap_munmap(void *address, size_t bytes) {
  __asan_unpoison_memory_region(address, bytes);
  return __real_munmap(address, bytes);
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  setenv("SHARDLEDGER_DIR", scratch_directory("cupti").c_str(), 1);
  setenv("SHARDLEDGER_MAX_BYTES", "256MiB", 1);
  setenv("SHARDLEDGER_KERNELS", "all", 1);
  setenv("SHARDLEDGER_LOG", "quiet", 1);
  fake = fake_cupti();
  return InitializeInjection() == 1 && fake->subscribed ? 0 : 1;
}

/* Puts valid pointers where records have some, walking as the fake does. */
static void pointers_set(uint8_t *buffer, size_t valid, const char *text) {
  for (size_t at = 0; at < valid;) {
    uint32_t kind;
    memcpy(&kind, buffer + at, sizeof(kind));
    size_t offset = SIZE_MAX;
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      offset = offsetof(CUpti_ActivityKernel4, name);
    if (kind == CUPTI_ACTIVITY_KIND_MEMORY2)
      offset = offsetof(CUpti_ActivityMemory4, source);
    if (offset != SIZE_MAX && at + offset + sizeof(text) <= valid)
      memcpy(buffer + at + offset, &text, sizeof(text));
    const size_t bytes = kind < FAKE_KINDS ? fake->record_bytes[kind] : 0;
    at += bytes ? bytes : 64;
  }
}

static void play_buffer(Input &input) {
  static const uint32_t kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMORY2,
                                   CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};
  for (uint32_t kind : kinds)
    fake->record_bytes[kind] = 8 * (1 + input.number<uint8_t>() % 32);
  fake->next_record = input.number<uint8_t>() % 16 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
  fake->dropped = input.number<uint8_t>() % 16 == 0;
  const std::string name = std::string("nccl") + input.bytes(input.number<uint8_t>() % 32).c_str();
  std::unique_ptr<char[]> text(strcpy(new char[name.size() + 1], name.c_str()));
  std::string records = input.bytes(input.number<uint16_t>() % 8192);
  records.resize(records.size() / 8 * 8);

  uint8_t *buffer = nullptr;
  size_t size = 0;
  fake_cupti_request(&buffer, &size);
  if (!buffer || size < records.size())
    abort();
  memcpy(buffer, records.data(), records.size());
  pointers_set(buffer, records.size(), text.get());
  ASAN_POISON_MEMORY_REGION(buffer + records.size(), size - records.size());
  const bool whole = input.number<uint8_t>() % 8 != 0; /* else a count of valid bytes that can't be */
  if (!whole)
    ASAN_UNPOISON_MEMORY_REGION(buffer, size);
  fake_cupti_complete(buffer, size, whole ? records.size() : size + 8);
}

static void play_callback(Input &input) {
  /* Every parameter is a pointer to readable memory, or a small number: as pointers and as values they are valid. */
  static uint64_t memory[64];
  for (uint64_t &word : memory)
    word = input.number<uint8_t>() % 2 ? input.number<uint8_t>() : (uint64_t)(uintptr_t)memory;
  const uint64_t filler = (uint64_t)(uintptr_t)memory;
  uint64_t parameters[24];
  for (uint64_t &word : parameters)
    word = filler;
  CUresult result = (CUresult)(input.number<uint8_t>() % 4 ? 0 : input.number<uint8_t>());
  CUpti_CallbackData data = {};
  data.functionName = "any";
  data.functionParams = parameters;
  data.functionReturnValue = &result;
  data.context = (CUcontext)(uintptr_t)input.number<uint8_t>();
  data.contextUid = input.number<uint8_t>();
  const uint32_t cbid = input.number<uint16_t>() % FAKE_CBIDS;
  for (CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    fake_cupti_play(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &data);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  while (!input.empty()) {
    if (input.number<uint8_t>() % 2)
      play_buffer(input);
    else
      play_callback(input);
  }
  return 0;
}

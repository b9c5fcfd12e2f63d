#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <nvtx3/nvToolsExtPayloadHelper.h>

#include "nvtx_library.h"

NVTX_DEFINE_STRUCT_WITH_SCHEMA(transfer, "Transfer",
                               NVTX_PAYLOAD_ENTRIES((uint32_t, count, TYPE_UINT32, "Count", "how many"),
                                                    (uint64_t, bytes, TYPE_UINT64, "Bytes", "how much")))

static uint64_t push_with_helpers(nvtxDomainHandle_t domain, uint32_t count, uint64_t bytes) {
  uint64_t schema = NVTX_PAYLOAD_SCHEMA_REGISTER(domain, transfer);
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = "transfer";
  transfer payload = {count, bytes};
  nvtxPayloadRangePush(domain, &attributes, schema, &payload, sizeof(payload));
  return schema;
}

extern "C" __attribute__((visibility("default"))) const nvtx_library *LIBRARY(void);

extern "C" const nvtx_library *LIBRARY(void) {
  static const nvtx_library library = {
#define FUNCTION(name) nvtx##name,
      NVTX_LIBRARY_FUNCTIONS
#undef FUNCTION
          push_with_helpers,
  };
  return &library;
}

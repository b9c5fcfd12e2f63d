/* The reader's side of NVTX payloads: schemas as a log may hold them, and payloads read by them. */
#include "fuzz.h"

#include "fakes/log_builder.h"

extern "C" {
#include "storage/log/nccl_payload.h"
}

#include <cstdlib>
#include <memory>

static sl_log *names; /* ids 1 … are NCCL's names for fields and reductions */

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  std::string directory = scratch_directory("nvtx-payload");
  {
    LogBuilder log(directory);
    for (const char *name : {"NCCL communicator ID", "Message size [bytes]", "Reduction operation", "Root", "Peer rank",
                             "No. of ranks", "Rank", "Sum", "Avg"})
      log.string(name);
  }
  sl_error error = {};
  return sl_log_open(directory.c_str(), &names, &error);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  sl_nccl_schemas *schemas = sl_nccl_schemas_new(names);
  for (unsigned count = input.number<uint8_t>() % 32; count > 0; count--) {
    sl_event_nvtx_schema_entry entry = {};
    entry.schema = (1u << 24) + input.number<uint8_t>() % 20;
    entry.type = input.number<uint8_t>();
    if (entry.type >= 128)
      entry.type = (1u << 24) + entry.type - 128; /* an enumeration's id */
    entry.offset = input.number<uint8_t>() % 3 ? input.number<uint8_t>() : input.number<uint64_t>();
    entry.name = input.number<uint8_t>() % 12;
    entry.domain = input.number<uint8_t>() % 2;
    if (sl_nccl_schemas_add(schemas, &entry) < 0)
      abort();
  }
  while (!input.empty()) {
    uint64_t schema = (1u << 24) + input.number<uint8_t>() % 20;
    uint32_t domain = input.number<uint8_t>() % 2;
    std::string payload = input.bytes(input.number<uint8_t>());
    /* A copy of exactly its length: a read beyond it is seen. */
    std::unique_ptr<char[]> exact(new char[payload.size()]);
    memcpy(exact.get(), payload.data(), payload.size());
    sl_nccl_payload out;
    sl_nccl_payload_read(schemas, domain, schema, exact.get(), (uint32_t)payload.size(), &out);
    if (out.reduction && strlen(out.reduction) > 1000)
      abort();
  }
  sl_nccl_schemas_free(schemas);
  return 0;
}

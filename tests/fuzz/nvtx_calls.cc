/*
 * NVTX as a program may call it, with arguments at the edge of what NVTX allows, against the plugin's handlers: names
 * in every form, structs of other sizes, foreign handles, schemas and payloads.
 */
#include "fuzz.h"

extern "C" {
#include "plugin/sources/source_nvtx.h"
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);
int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);
}

#include <cstdlib>
#include <memory>
#include <vector>

constexpr unsigned SLOTS = 64;

/* NVTX's side: slots that the plugin fills. */
static NvtxFunctionPointer core[SLOTS], core2[SLOTS];
static NvtxFunctionPointer *core_table[SLOTS + 1], *core2_table[SLOTS + 1];
static intptr_t payload_slots[SLOTS];
static std::vector<nvtxDomainHandle_t> domains = {nullptr, (nvtxDomainHandle_t)0x1234};
static std::vector<nvtxStringHandle_t> strings = {nullptr, (nvtxStringHandle_t)0x1234};

static int table_get(NvtxCallbackModule module, NvtxFunctionTable *out, unsigned *size) {
  *out = module == NVTX_CB_MODULE_CORE ? core_table : core2_table;
  *size = SLOTS;
  return module == NVTX_CB_MODULE_CORE || module == NVTX_CB_MODULE_CORE2;
}

static const void *NVTX_API export_table_get(uint32_t) {
  static const NvtxExportTableCallbacks callbacks = {sizeof(callbacks), table_get};
  return &callbacks;
}

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  setenv("SHARDLEDGER_DIR", scratch_directory("nvtx-calls").c_str(), 1);
  setenv("SHARDLEDGER_MAX_BYTES", "256MiB", 1);
  setenv("SHARDLEDGER_LOG", "quiet", 1);
  for (unsigned i = 1; i < SLOTS; i++) {
    core_table[i] = &core[i];
    core2_table[i] = &core2[i];
  }
  nvtxExtModuleSegment_t segment = {};
  segment.slotCount = SLOTS;
  segment.functionSlots = payload_slots;
  nvtxExtModuleInfo_t module = {};
  module.structSize = sizeof(module);
  module.moduleId = NVTX_EXT_PAYLOAD_MODULEID;
  module.segmentsCount = 1;
  module.segments = &segment;
  return InitializeInjectionNvtx2(export_table_get) == 1 && InitializeInjectionNvtxExtension(&module) == 1 ? 0 : 1;
}

template <class Function> static Function *core_call(unsigned id) {
  return reinterpret_cast<Function *>(core[id]);
}
template <class Function> static Function *core2_call(unsigned id) {
  return reinterpret_cast<Function *>(core2[id]);
}
template <class Function> static Function *payload_call(unsigned id) {
  return reinterpret_cast<Function *>(payload_slots[id]);
}

/* Memory of exactly the size that the plugin is told, so that a read beyond it is seen. Lives as long as the input. */
class Arena {
public:
  const char *keep(const std::string &bytes) {
    blocks.emplace_back(new char[bytes.size()]);
    memcpy(blocks.back().get(), bytes.data(), bytes.size());
    return blocks.back().get();
  }
  const char *text(Input &input) {
    std::string text = input.bytes(input.number<uint8_t>());
    return keep(std::string(text.c_str()) + '\0');
  }
  const wchar_t *wide(Input &input) {
    std::string bytes;
    for (unsigned count = input.number<uint8_t>() % 32; count > 0; count--) {
      uint32_t c = input.number<uint32_t>();
      bytes.append((const char *)&c, sizeof(c));
    }
    bytes.append(4, '\0');
    return (const wchar_t *)keep(bytes);
  }

private:
  std::vector<std::unique_ptr<char[]>> blocks;
};

template <class Item> static Item pick(Input &input, const std::vector<Item> &items) {
  return items[input.number<uint8_t>() % items.size()];
}

static nvtxPayloadData_t payload_of(Input &input, Arena &arena) {
  nvtxPayloadData_t payload = {};
  payload.schemaId = input.number<uint8_t>();
  const std::string bytes = input.bytes(input.number<uint8_t>() * 5u);
  payload.size = bytes.size();
  payload.payload = arena.keep(bytes);
  if (input.number<uint8_t>() % 8 == 0)
    payload.size = SIZE_MAX;
  if (input.number<uint8_t>() % 8 == 0)
    payload.payload = nullptr;
  return payload;
}

/* A struct as its maker knew it: of any size, filled up to there. */
static const nvtxEventAttributes_t *attributes_of(Input &input, Arena &arena) {
  nvtxEventAttributes_t a = {};
  a.version = input.number<uint16_t>();
  a.size = input.number<uint8_t>() % 4 ? (uint16_t)sizeof(a) : input.number<uint8_t>() % (sizeof(a) + 1);
  a.category = input.number<uint32_t>();
  a.payloadType = (int32_t)(input.number<uint8_t>() % 10);
  a.payload.ullValue = input.number<uint64_t>();
  if (a.payloadType == (int32_t)NVTX_PAYLOAD_TYPE_EXT || input.number<uint8_t>() % 3 == 0) {
    const nvtxPayloadData_t payload = payload_of(input, arena);
    a.payloadType = (int32_t)NVTX_PAYLOAD_TYPE_EXT;
    a.payload.ullValue = (uint64_t)(uintptr_t)arena.keep(std::string((const char *)&payload, sizeof(payload)));
    a.reserved0 = input.number<uint8_t>() % 3;
  }
  a.messageType = input.number<uint8_t>() % 5;
  switch (a.messageType) {
  case NVTX_MESSAGE_TYPE_ASCII: a.message.ascii = arena.text(input); break;
  case NVTX_MESSAGE_TYPE_UNICODE: a.message.unicode = arena.wide(input); break;
  case NVTX_MESSAGE_TYPE_REGISTERED: a.message.registered = pick(input, strings); break;
  default: break;
  }
  const size_t told = a.size < 4 ? 4 : a.size;
  return (const nvtxEventAttributes_t *)arena.keep(std::string((const char *)&a, told));
}

static void schema_register(Input &input, Arena &arena) {
  std::string bytes;
  const size_t count = input.number<uint8_t>();
  for (size_t i = 0; i < count && i < 40; i++) {
    nvtxPayloadSchemaEntry_t entry = {};
    entry.flags = input.number<uint32_t>();
    entry.type = input.number<uint8_t>() % 3 ? input.number<uint8_t>() : input.number<uint64_t>();
    entry.name = input.number<uint8_t>() % 4 ? arena.text(input) : nullptr;
    entry.arrayOrUnionDetail = input.number<uint64_t>();
    entry.offset = input.number<uint8_t>() % 2 ? 0 : input.number<uint64_t>();
    bytes.append((const char *)&entry, sizeof(entry));
  }
  nvtxPayloadSchemaAttr_t schema = {};
  schema.fieldMask = input.number<uint16_t>();
  schema.name = arena.text(input);
  schema.type = input.number<uint8_t>();
  schema.entries = (const nvtxPayloadSchemaEntry_t *)arena.keep(bytes);
  schema.numEntries = bytes.size() / sizeof(nvtxPayloadSchemaEntry_t);
  schema.payloadStaticSize = input.number<uint64_t>();
  schema.schemaId = input.number<uint64_t>();
  payload_call<uint64_t(nvtxDomainHandle_t, const nvtxPayloadSchemaAttr_t *)>(NVTX3EXT_CBID_nvtxPayloadSchemaRegister)(
      pick(input, domains), &schema);
}

static void enum_register(Input &input, Arena &arena) {
  std::string bytes;
  for (unsigned count = input.number<uint8_t>() % 20; count > 0; count--) {
    nvtxPayloadEnum_t value = {};
    value.name = input.number<uint8_t>() % 4 ? arena.text(input) : nullptr;
    value.value = input.number<uint64_t>();
    bytes.append((const char *)&value, sizeof(value));
  }
  nvtxPayloadEnumAttr_t enumeration = {};
  enumeration.fieldMask = input.number<uint16_t>();
  enumeration.name = arena.text(input);
  enumeration.entries = (const nvtxPayloadEnum_t *)arena.keep(bytes);
  enumeration.numEntries = bytes.size() / sizeof(nvtxPayloadEnum_t);
  enumeration.schemaId = input.number<uint64_t>();
  payload_call<uint64_t(nvtxDomainHandle_t, const nvtxPayloadEnumAttr_t *)>(NVTX3EXT_CBID_nvtxPayloadEnumRegister)(
      pick(input, domains), &enumeration);
}

static void call(Input &input, Arena &arena) {
  using Push = int(const nvtxEventAttributes_t *);
  using DomainPush = int(nvtxDomainHandle_t, const nvtxEventAttributes_t *);
  using DomainStart = nvtxRangeId_t(nvtxDomainHandle_t, const nvtxEventAttributes_t *);
  using PayloadPush = int(nvtxDomainHandle_t, const nvtxPayloadData_t *, size_t);
  switch (input.number<uint8_t>() % 18) {
  case 0: core_call<Push>(NVTX_CBID_CORE_RangePushEx)(attributes_of(input, arena)); break;
  case 1: core_call<int(const char *)>(NVTX_CBID_CORE_RangePushA)(arena.text(input)); break;
  case 2: core_call<int(const wchar_t *)>(NVTX_CBID_CORE_RangePushW)(arena.wide(input)); break;
  case 3: core_call<int()>(NVTX_CBID_CORE_RangePop)(); break;
  case 4: core_call<void(nvtxRangeId_t)>(NVTX_CBID_CORE_RangeEnd)(input.number<uint64_t>()); break;
  case 5: core_call<void(const wchar_t *)>(NVTX_CBID_CORE_MarkW)(arena.wide(input)); break;
  case 6: core_call<void(const char *)>(NVTX_CBID_CORE_MarkA)(arena.text(input)); break;
  case 7:
    core2_call<DomainPush>(NVTX_CBID_CORE2_DomainRangePushEx)(pick(input, domains), attributes_of(input, arena));
    break;
  case 8: core2_call<int(nvtxDomainHandle_t)>(NVTX_CBID_CORE2_DomainRangePop)(pick(input, domains)); break;
  case 9:
    core2_call<DomainStart>(NVTX_CBID_CORE2_DomainRangeStartEx)(pick(input, domains), attributes_of(input, arena));
    break;
  case 10:
    core2_call<void(nvtxDomainHandle_t, const nvtxEventAttributes_t *)>(NVTX_CBID_CORE2_DomainMarkEx)(
        pick(input, domains), attributes_of(input, arena));
    break;
  case 11: {
    auto handle = core2_call<nvtxStringHandle_t(nvtxDomainHandle_t, const char *)>(
        NVTX_CBID_CORE2_DomainRegisterStringA)(pick(input, domains), arena.text(input));
    if (strings.size() < 50)
      strings.push_back(handle);
    break;
  }
  case 12: {
    auto handle = core2_call<nvtxDomainHandle_t(const char *)>(NVTX_CBID_CORE2_DomainCreateA)(arena.text(input));
    if (domains.size() < 200)
      domains.push_back(handle);
    break;
  }
  case 13: core2_call<void(nvtxDomainHandle_t)>(NVTX_CBID_CORE2_DomainDestroy)(pick(input, domains)); break;
  case 14: schema_register(input, arena); break;
  case 15: enum_register(input, arena); break;
  case 16: {
    const nvtxPayloadData_t payload = payload_of(input, arena);
    payload_call<PayloadPush>(NVTX3EXT_CBID_nvtxRangePushPayload)(pick(input, domains), &payload,
                                                                  input.number<uint8_t>() % 2);
    break;
  }
  default: {
    const nvtxPayloadData_t payload = payload_of(input, arena);
    payload_call<PayloadPush>(NVTX3EXT_CBID_nvtxRangePopPayload)(pick(input, domains), &payload,
                                                                 input.number<uint8_t>() % 2);
  }
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  Arena arena;
  while (!input.empty())
    call(input, arena);
  return 0;
}

/* NVTX's payload extension, by NVTX's own macros and as NCCL uses it. */
#include "fakes/nvtx_library.h"
#include "plugin/recorded.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

static const nvtx_library *alpha() {
  void *library = dlopen(NVTX_ALPHA, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    exit(1);
  }
  return reinterpret_cast<const nvtx_library *(*)()>(dlsym(library, "alpha"))();
}

static Recording record_nvtx(const std::function<void()> &body) {
  return record({{"NVTX_INJECTION64_PATH", PLUGIN}}, body);
}

static nvtxEventAttributes_t attributes(const nvtxPayloadData_t *payload, int32_t count) {
  nvtxEventAttributes_t out = {};
  out.version = NVTX_VERSION;
  out.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  out.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  out.reserved0 = count;
  out.payload.ullValue = reinterpret_cast<uintptr_t>(payload);
  return out;
}

static std::string bytes_of(const Event &event) {
  return event.tail(sizeof(sl_event_range_payload), event.as<sl_event_range_payload>().length);
}

TEST(SourceNvtxPayload, NvtxsOwnHelpersRegisterASchemaAndAttachAStruct) {
  struct transfer {
    uint32_t count;
    uint64_t bytes;
  };
  Recording log = record_nvtx([] {
    nvtxDomainHandle_t domain = alpha()->DomainCreateA("domain");
    uint64_t schema = alpha()->PushWithHelpers(domain, 3, 4096);
    EXPECT_GT(schema, NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START);
    EXPECT_NE(alpha()->PushWithHelpers(domain, 4, 8192), schema);
    EXPECT_EQ(alpha()->DomainIsEnabled(domain), 1);
  });
  auto entries = ALL(log, nvtx_schema_entry);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(log.name(entries[0].schema_name), "Transfer");
  EXPECT_EQ(log.name(entries[0].name), "Count");
  EXPECT_EQ(entries[0].offset, 0u);
  EXPECT_EQ(entries[0].type, static_cast<uint64_t>(NVTX_PAYLOAD_ENTRY_TYPE_UINT32));
  EXPECT_EQ(log.name(entries[1].name), "Bytes");
  EXPECT_EQ(entries[1].offset, offsetof(transfer, bytes));
  auto payloads = log.of(SL_EVENT_range_payload);
  ASSERT_EQ(payloads.size(), 2u);
  auto payload = payloads[0].as<sl_event_range_payload>();
  EXPECT_EQ(payload.schema, entries[0].schema);
  EXPECT_EQ(payload.domain, ALL(log, nvtx_domain)[0].id);
  ASSERT_EQ(payload.length, sizeof(transfer));
  transfer copied;
  memcpy(&copied, bytes_of(payloads[0]).data(), sizeof(copied));
  EXPECT_EQ(copied.count, 3u);
  EXPECT_EQ(copied.bytes, 4096u);
}

TEST(SourceNvtxPayload, ThePayloadFollowsItsRange) {
  Recording log = record_nvtx([] {
    nvtxPayloadData_t payloads[] = {{(1 << 24) + 4, 3, "abc"}, {(1 << 24) + 5, 3, "def"}};
    nvtxEventAttributes_t range = attributes(payloads, 2);
    alpha()->RangePushA("before");
    alpha()->RangePushEx(&range);
    alpha()->RangeStartEx(&range);
    alpha()->MarkEx(&range);
  });
  std::vector<uint8_t> types;
  for (const Event &event : log.events)
    if (event.type >= SL_EVENT_range_push && event.type <= SL_EVENT_range_payload)
      types.push_back(event.type);
  EXPECT_EQ(types, (std::vector<uint8_t>{SL_EVENT_range_push, SL_EVENT_range_push, SL_EVENT_range_payload,
                                         SL_EVENT_range_start, SL_EVENT_range_payload, SL_EVENT_range_mark,
                                         SL_EVENT_range_payload}));
  for (const Event &event : log.of(SL_EVENT_range_payload)) {
    EXPECT_EQ(event.as<sl_event_range_payload>().schema, (1u << 24) + 4);
    EXPECT_EQ(bytes_of(event), "abc");
  }
}

TEST(SourceNvtxPayload, LargeEmptyAndUnsizedPayloadsAreClipped) {
  Recording log = record_nvtx([] {
    std::string large(5000, 'x');
    nvtxPayloadData_t payloads[] = {{1, large.size(), large.data()}, {2, 8, nullptr}, {3, SIZE_MAX, "unknown"}};
    for (const nvtxPayloadData_t &payload : payloads) {
      nvtxEventAttributes_t range = attributes(&payload, 1);
      alpha()->MarkEx(&range);
    }
    nvtxEventAttributes_t none = attributes(payloads, 0);
    alpha()->MarkEx(&none);
    none = attributes(nullptr, 1);
    alpha()->MarkEx(&none);
  });
  EXPECT_EQ(log.of(SL_EVENT_range_mark).size(), 5u);
  auto payloads = log.of(SL_EVENT_range_payload);
  ASSERT_EQ(payloads.size(), 3u);
  EXPECT_EQ(bytes_of(payloads[0]), std::string(1024, 'x'));
  EXPECT_EQ(bytes_of(payloads[1]), "");
  EXPECT_EQ(payloads[1].as<sl_event_range_payload>().schema, 2u);
  EXPECT_EQ(bytes_of(payloads[2]), "");
}

TEST(SourceNvtxPayload, AStaticSchemaKeepsItsIdAndOffsetsLeftOutAreComputed) {
  Recording log = record_nvtx([] {
    nvtxPayloadSchemaEntry_t entries[] = {
        {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "byte", nullptr, 0, 0, nullptr, nullptr},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "long", nullptr, 0, 0, nullptr, nullptr},
        {NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE, NVTX_PAYLOAD_ENTRY_TYPE_UINT16, "array", nullptr, 3, 0, nullptr,
         nullptr},
        {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "int", nullptr, 0, 0, nullptr, nullptr},
        {0, (1 << 24) + 77, nullptr, nullptr, 0, 40, nullptr, nullptr}, /* an enumeration, with an offset */
    };
    nvtxPayloadSchemaAttr_t schema = {};
    schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                       NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
    schema.name = reinterpret_cast<const char *>(1); /* not in the mask: not to be read */
    schema.entries = entries;
    schema.numEntries = 5;
    schema.schemaId = (1 << 24) + 4;
    EXPECT_EQ(alpha()->PayloadSchemaRegister(nullptr, &schema), (1u << 24) + 4);
    schema.fieldMask = 0;
    EXPECT_GT(alpha()->PayloadSchemaRegister(nullptr, &schema), NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START);
    EXPECT_EQ(alpha()->PayloadSchemaRegister(nullptr, nullptr), 0u);
    alpha()->MarkA("mark");
  });
  auto entries = ALL(log, nvtx_schema_entry);
  ASSERT_EQ(entries.size(), 5u);
  std::vector<uint64_t> offsets;
  for (const auto &entry : entries) {
    EXPECT_EQ(entry.schema, (1u << 24) + 4);
    EXPECT_EQ(entry.schema_name, 0u);
    offsets.push_back(entry.offset);
  }
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, 8, 16, 24, 40}));
  EXPECT_EQ(entries[4].type, (1u << 24) + 77);
}

TEST(SourceNvtxPayload, AnEnumerationsValuesAreRecordedWithTheirNames) {
  Recording log = record_nvtx([] {
    nvtxPayloadEnum_t values[] = {{"Sum", 0, 0}, {"Max", 3, 0}};
    nvtxPayloadEnumAttr_t enumeration = {};
    enumeration.fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME | NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES |
                            NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID;
    enumeration.name = "ncclRedOp";
    enumeration.entries = values;
    enumeration.numEntries = 2;
    enumeration.schemaId = (1 << 24) + 11;
    EXPECT_EQ(alpha()->PayloadEnumRegister(nullptr, &enumeration), (1u << 24) + 11);
    alpha()->MarkA("mark");
  });
  auto entries = ALL(log, nvtx_schema_entry);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(log.name(entries[1].schema_name), "ncclRedOp");
  EXPECT_EQ(log.name(entries[1].name), "Max");
  EXPECT_EQ(entries[1].offset, 3u);
  EXPECT_EQ(entries[1].type, 0u);
}

TEST(SourceNvtxPayload, ThePayloadOfAnEndFollowsIt) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    nvtxPayloadData_t payload = {9, 2, "hi"};
    EXPECT_EQ(nvtx->RangePushPayload(nullptr, nullptr, 0), 0);
    EXPECT_EQ(nvtx->RangePopPayload(nullptr, &payload, 1), 0);
    EXPECT_LT(nvtx->RangePopPayload(nullptr, &payload, 1), 0); /* ends nothing, so it says nothing */
  });
  std::vector<uint8_t> types;
  for (const Event &event : log.events)
    if (event.thread != 0 && event.type >= SL_EVENT_range_push && event.type <= SL_EVENT_range_payload)
      types.push_back(event.type);
  EXPECT_EQ(types, (std::vector<uint8_t>{SL_EVENT_range_push, SL_EVENT_range_pop, SL_EVENT_range_payload}));
  auto payloads = log.of(SL_EVENT_range_payload);
  ASSERT_EQ(payloads.size(), 1u);
  EXPECT_EQ(payloads[0].as<sl_event_range_payload>().schema, 9u);
  EXPECT_EQ(payloads[0].tail(sizeof(sl_event_range_payload), 2), "hi");
}

TEST(SourceNvtxPayload, RangesMayConsistOfAPayloadAlone) {
  Recording log = record_nvtx([] {
    const nvtx_library *nvtx = alpha();
    nvtxPayloadData_t payload = {9, 2, "hi"};
    EXPECT_EQ(nvtx->RangePushPayload(nullptr, &payload, 1), 0);
    EXPECT_EQ(nvtx->RangePushPayload(nullptr, nullptr, 0), 1);
    EXPECT_EQ(nvtx->RangePopPayload(nullptr, &payload, 1), 1);
    nvtxRangeId_t id = nvtx->RangeStartPayload(nullptr, &payload, 1);
    EXPECT_NE(id, 0u);
    nvtx->RangeEndPayload(nullptr, id, &payload, 1);
    nvtx->MarkPayload(nullptr, &payload, 1);
  });
  EXPECT_EQ(log.of(SL_EVENT_range_push).size(), 2u);
  EXPECT_EQ(log.of(SL_EVENT_range_pop).size(), 1u);
  EXPECT_EQ(log.of(SL_EVENT_range_start).size(), 1u);
  EXPECT_EQ(log.of(SL_EVENT_range_end).size(), 1u);
  EXPECT_EQ(log.of(SL_EVENT_range_mark).size(), 1u);
  EXPECT_EQ(log.of(SL_EVENT_range_payload).size(), 4u) << "of the push, the pop, the start and the mark";
}

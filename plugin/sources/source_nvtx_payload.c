/*
 * NVTX's payload extension: which fields the extended payloads of a library have, and ranges that carry one.
 *
 * NCCL describes its collectives this way. A library registers each layout (a schema) once; its fields become
 * nvtx_schema_entry definitions, so that readers need no table of NCCL versions. The payloads themselves come with the
 * range events (source_nvtx.c).
 */
#include "plugin/log/event_log.h"
#include "plugin/log/thread_state.h"
#include "plugin/shardledger.h"
#include "source_nvtx.h"

#include <stdatomic.h>
#include <stddef.h>

#define ENTRIES_MAX 256u /* of one schema or enumeration */

static _Atomic uint64_t last_dynamic_id = NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START;

/* The id that the library chose, or a new one. */
static uint64_t schema_id(int chosen, uint64_t id) {
  return chosen && id != 0 ? id : atomic_fetch_add(&last_dynamic_id, 1) + 1;
}

static void define_entry(const struct sl_event_nvtx_schema_entry *entry) {
  sl_log_define(SL_EVENT_nvtx_schema_entry, entry, sizeof(*entry), NULL, 0);
}

/* Size and alignment of NVTX's basic types, by their number; 0 for those that have none of their own. */
static size_t type_size(uint64_t type) {
  static const uint8_t sizes[] = {
      [NVTX_PAYLOAD_ENTRY_TYPE_CHAR] = 1,
      [NVTX_PAYLOAD_ENTRY_TYPE_UCHAR] = 1,
      [NVTX_PAYLOAD_ENTRY_TYPE_SHORT] = sizeof(short),
      [NVTX_PAYLOAD_ENTRY_TYPE_USHORT] = sizeof(short),
      [NVTX_PAYLOAD_ENTRY_TYPE_INT] = sizeof(int),
      [NVTX_PAYLOAD_ENTRY_TYPE_UINT] = sizeof(int),
      [NVTX_PAYLOAD_ENTRY_TYPE_LONG] = sizeof(long),
      [NVTX_PAYLOAD_ENTRY_TYPE_ULONG] = sizeof(long),
      [NVTX_PAYLOAD_ENTRY_TYPE_LONGLONG] = sizeof(long long),
      [NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG] = sizeof(long long),
      [NVTX_PAYLOAD_ENTRY_TYPE_INT8] = 1,
      [NVTX_PAYLOAD_ENTRY_TYPE_UINT8] = 1,
      [NVTX_PAYLOAD_ENTRY_TYPE_INT16] = 2,
      [NVTX_PAYLOAD_ENTRY_TYPE_UINT16] = 2,
      [NVTX_PAYLOAD_ENTRY_TYPE_INT32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_UINT32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_INT64] = 8,
      [NVTX_PAYLOAD_ENTRY_TYPE_UINT64] = 8,
      [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT] = sizeof(float),
      [NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE] = sizeof(double),
      [NVTX_PAYLOAD_ENTRY_TYPE_LONGDOUBLE] = sizeof(long double),
      [NVTX_PAYLOAD_ENTRY_TYPE_SIZE] = sizeof(size_t),
      [NVTX_PAYLOAD_ENTRY_TYPE_ADDRESS] = sizeof(void *),
      [NVTX_PAYLOAD_ENTRY_TYPE_WCHAR] = sizeof(wchar_t),
      [NVTX_PAYLOAD_ENTRY_TYPE_CHAR8] = 1,
      [NVTX_PAYLOAD_ENTRY_TYPE_CHAR16] = 2,
      [NVTX_PAYLOAD_ENTRY_TYPE_CHAR32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_BYTE] = 1,
      [NVTX_PAYLOAD_ENTRY_TYPE_INT128] = 16,
      [NVTX_PAYLOAD_ENTRY_TYPE_UINT128] = 16,
      [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT16] = 2,
      [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT64] = 8,
      [NVTX_PAYLOAD_ENTRY_TYPE_FLOAT128] = 16,
      [NVTX_PAYLOAD_ENTRY_TYPE_BF16] = 2,
      [NVTX_PAYLOAD_ENTRY_TYPE_TF32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_CATEGORY] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_COLOR_ARGB] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_SCOPE_ID] = 8,
      [NVTX_PAYLOAD_ENTRY_TYPE_PID_UINT32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_PID_UINT64] = 8,
      [NVTX_PAYLOAD_ENTRY_TYPE_TID_UINT32] = 4,
      [NVTX_PAYLOAD_ENTRY_TYPE_TID_UINT64] = 8,
      [NVTX_PAYLOAD_ENTRY_TYPE_CSTRING] = sizeof(char *),
      [NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8] = sizeof(char *),
      [NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF16] = sizeof(char *),
      [NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF32] = sizeof(char *),
      [NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE] = sizeof(void *),
  };
  return type < sizeof(sizes) ? sizes[type] : 0;
}

/* Bytes that a field takes in a static layout, or 0 when they can't be known here. */
static size_t entry_size(const nvtxPayloadSchemaEntry_t *entry) {
  if (entry->flags & NVTX_PAYLOAD_ENTRY_FLAG_POINTER)
    return sizeof(void *);
  size_t size = type_size(entry->type);
  uint64_t array = entry->flags & (7u << 4);
  if (array == NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE)
    return entry->arrayOrUnionDetail < UINT16_MAX ? size * (size_t)entry->arrayOrUnionDetail : 0;
  return array == 0 ? size : 0;
}

static uint64_t schema_register(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *schema) {
  if (!schema)
    return 0;
  uint64_t fields = schema->fieldMask;
  struct sl_event_nvtx_schema_entry event = {.domain = sl_nvtx_domain(domain)};
  event.schema = schema_id((fields & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID) != 0, schema->schemaId);
  if (fields & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME)
    event.schema_name = sl_log_name(schema->name);
  if (!(fields & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES) || !(fields & NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES) ||
      !schema->entries)
    return event.schema;

  /* An offset may be left out: then the field follows the one before it, aligned as a C struct's would be. */
  size_t next = 0;
  for (size_t i = 0; i < schema->numEntries && i < ENTRIES_MAX; i++) {
    const nvtxPayloadSchemaEntry_t *entry = &schema->entries[i];
    size_t alignment = entry->flags & NVTX_PAYLOAD_ENTRY_FLAG_POINTER ? sizeof(void *) : type_size(entry->type);
    event.offset = entry->offset;
    if (entry->offset == 0 && alignment != 0)
      event.offset = (next + alignment - 1) / alignment * alignment;
    next = (size_t)event.offset + entry_size(entry);
    event.type = entry->type;
    event.flags = (uint32_t)entry->flags;
    event.name = sl_log_name(entry->name);
    define_entry(&event);
  }
  return event.schema;
}

/* An enumeration is recorded like a schema whose fields have type 0 and their value in place of an offset. */
static uint64_t enum_register(nvtxDomainHandle_t domain, const nvtxPayloadEnumAttr_t *enumeration) {
  if (!enumeration)
    return 0;
  uint64_t fields = enumeration->fieldMask;
  struct sl_event_nvtx_schema_entry event = {.domain = sl_nvtx_domain(domain), .type = NVTX_PAYLOAD_ENTRY_TYPE_INVALID};
  event.schema = schema_id((fields & NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID) != 0, enumeration->schemaId);
  if (fields & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME)
    event.schema_name = sl_log_name(enumeration->name);
  if (!(fields & NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES) || !(fields & NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES) ||
      !enumeration->entries)
    return event.schema;
  for (size_t i = 0; i < enumeration->numEntries && i < ENTRIES_MAX; i++) {
    event.offset = enumeration->entries[i].value;
    event.name = sl_log_name(enumeration->entries[i].name);
    define_entry(&event);
  }
  return event.schema;
}

/* ---- ranges that have a payload and no attributes ---- */

static struct sl_nvtx_range range_of(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t count) {
  return (struct sl_nvtx_range){.domain = sl_nvtx_domain(domain), .payload = count > 0 ? payload : NULL};
}

static int range_push(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t count) {
  struct sl_nvtx_range range = range_of(domain, payload, count);
  return sl_nvtx_push(&range);
}
static int range_pop(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t count) {
  return sl_nvtx_pop(sl_nvtx_domain(domain), count > 0 ? payload : NULL);
}
static nvtxRangeId_t range_start(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t count) {
  struct sl_nvtx_range range = range_of(domain, payload, count);
  return sl_nvtx_start(&range);
}
static void range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id, const nvtxPayloadData_t *payload, size_t count) {
  sl_nvtx_end(id);
}
static void mark(nvtxDomainHandle_t domain, const nvtxPayloadData_t *payload, size_t count) {
  struct sl_nvtx_range range = range_of(domain, payload, count);
  sl_nvtx_mark(&range);
}

#define HANDLER(name, function) [NVTX3EXT_CBID_##name] = (void (*)(void))(function)

static void (*const handlers[])(void) = {
    HANDLER(nvtxPayloadSchemaRegister, schema_register),
    HANDLER(nvtxPayloadEnumRegister, enum_register),
    HANDLER(nvtxMarkPayload, mark),
    HANDLER(nvtxRangePushPayload, range_push),
    HANDLER(nvtxRangePopPayload, range_pop),
    HANDLER(nvtxRangeStartPayload, range_start),
    HANDLER(nvtxRangeEndPayload, range_end),
};

/*
 * NVTX's entry point for extensions, called once per library and extension. Slots left alone become no-ops, so the
 * extensions that we do not record (memory, counters) are accepted and stay quiet; refusing would unload this library.
 */
SL_API int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);

SL_API int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module) {
  sl_log_init();
  if (!module || module->structSize < offsetof(nvtxExtModuleInfo_t, segments) + sizeof(module->segments) ||
      module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount == 0 || !module->segments)
    return 1;
  const nvtxExtModuleSegment_t *segment = &module->segments[0];
  for (size_t i = 0; i < sizeof(handlers) / sizeof(*handlers) && i < segment->slotCount; i++)
    if (segment->functionSlots && handlers[i])
      segment->functionSlots[i] = (intptr_t)handlers[i];
  return 1;
}

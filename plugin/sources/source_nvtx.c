/*
 * Capture source nvtx: the ranges of every library in the process, ours included.
 *
 * Each library that uses NVTX carries its own copy of NVTX and calls InitializeInjectionNvtx2 at its first NVTX call,
 * so that runs several times, on any thread, at once too. Nothing here keeps state per library: handles and ids are
 * the process's.
 *
 * A push or pop costs a clock read, a copy of 32 or 24 bytes and for plain strings one lookup of the name. Ranges are
 * not remembered here; only their number is, per thread and domain, because NVTX wants the level back.
 */
#include "source_nvtx.h"
#include "plugin/log/event_log.h"
#include "plugin/log/thread_state.h"
#include "plugin/shardledger.h"
#include "source.h"
#include "step_window.h"

#include "nvtx_ranges/kinds.h"

#include <stdatomic.h>
#include <wchar.h>

#define DOMAINS_MAX SL_THREAD_LEVELS /* ids 1 … 254, then one for all further domains together */
#define DOMAIN_OTHERS 255u           /* they, and those without a name, lose their names, not their ranges */
#define LEVELS_MAX 1024u             /* deeper ranges are counted, so that levels stay right, and not recorded */
#define PAYLOAD_MAX 1024u            /* bytes kept of an extended payload */
#define NAME_BYTES 1000u             /* of a wide string as UTF-8; what the log keeps of a name */

/* ---- domains ---- */

/*
 * A handle is the address of an entry, an id its index. Entry 0 is NVTX's default domain, which has no handle. A domain
 * is its name, to whoever makes it: native code and the companion have ranges in one domain, which is read as one. So
 * its entry stays when one of them destroys it.
 */
struct domain {
  _Atomic uint32_t name; /* 0: not used */
};

static struct domain domains[DOMAINS_MAX];
static _Atomic uint32_t own_domain; /* that of the companion's ranges; 0: not made yet */

uint16_t sl_nvtx_domain(nvtxDomainHandle_t handle) {
  uintptr_t offset = (uintptr_t)handle - (uintptr_t)domains; /* wraps for lower addresses, to beyond the table */
  if (!handle || offset >= sizeof(domains) || offset % sizeof(domains[0]) != 0)
    return 0;
  return (uint16_t)(offset / sizeof(domains[0]));
}

/* Whether the entry is this name's, or was free and is now. */
static bool claim_domain(uint32_t id, uint32_t name) {
  uint32_t before = 0;
  if (!atomic_compare_exchange_strong(&domains[id].name, &before, name))
    return before == name;
  if (name == sl_log_name(SL_NVTX_DOMAIN))
    atomic_store(&own_domain, id);
  struct sl_event_nvtx_domain event = {.id = id, .name = name};
  sl_log_define(SL_EVENT_nvtx_domain, &event, sizeof(event), NULL, 0);
  return true;
}

static nvtxDomainHandle_t create_domain(uint32_t name) {
  for (uint32_t id = 1; name != 0 && id < DOMAIN_OTHERS; id++)
    if (claim_domain(id, name))
      return (nvtxDomainHandle_t)&domains[id];
  claim_domain(DOMAIN_OTHERS, sl_log_name("(further domains)"));
  return (nvtxDomainHandle_t)&domains[DOMAIN_OTHERS];
}

uint16_t sl_nvtx_domain_named(uint32_t name) {
  return sl_nvtx_domain(create_domain(name));
}

static void domain_destroy(nvtxDomainHandle_t handle) {}

/* ---- names ---- */

/* NVTX's wide strings are UTF-32 here. */
static uint32_t wide_name(const wchar_t *text) {
  char out[NAME_BYTES];
  size_t length = 0;
  for (; text && *text && length + 4 <= sizeof(out); text++) {
    uint32_t c = (uint32_t)*text;
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
      c = 0xfffd;
    unsigned continuation = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0x00, 0xc0, 0xe0, 0xf0};
    out[length++] = (char)(lead[continuation] | c >> (6 * continuation));
    while (continuation-- > 0)
      out[length++] = (char)(0x80 | (c >> (6 * continuation) & 0x3f));
  }
  return sl_log_name_n(out, length);
}

/*
 * Registered strings: the handle is the name's id with a mark that no pointer carries (addresses end at 57 bits).
 *   ┌──────────────────────┬─────────────┐
 *   │ 0x534c4e58 ("SLNX")  │ id of name  │
 *   └──────────────────────┴─────────────┘
 */
#define REGISTERED_MARK 0x534c4e58ull

static nvtxStringHandle_t registered_handle(uint32_t name) {
  return (nvtxStringHandle_t)(uintptr_t)(REGISTERED_MARK << 32 | name);
}

static uint32_t registered_name(nvtxStringHandle_t handle) {
  uint64_t bits = (uintptr_t)handle;
  return bits >> 32 == REGISTERED_MARK ? (uint32_t)bits : 0;
}

/* ---- arguments ---- */

static uint64_t truncated(double value) {
  /* Outside of int64_t the conversion is undefined; NaN fails both comparisons. */
  return value > -9223372036854775808.0 && value < 9223372036854775808.0 ? (uint64_t)(int64_t)value : 0;
}

static uint32_t message_name(const nvtxEventAttributes_t *attributes) {
  switch (attributes->messageType) {
  case NVTX_MESSAGE_TYPE_ASCII: return sl_log_name(attributes->message.ascii);
  case NVTX_MESSAGE_TYPE_UNICODE: return wide_name(attributes->message.unicode);
  case NVTX_MESSAGE_TYPE_REGISTERED: return registered_name(attributes->message.registered);
  default: return 0;
  }
}

static void read_payload(const nvtxEventAttributes_t *attributes, struct sl_nvtx_range *range) {
  switch (attributes->payloadType) {
  case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
  case NVTX_PAYLOAD_TYPE_INT64: range->value = attributes->payload.ullValue; break;
  case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32: range->value = attributes->payload.uiValue; break;
  case NVTX_PAYLOAD_TYPE_INT32: range->value = (uint64_t)(int64_t)attributes->payload.iValue; break;
  case NVTX_PAYLOAD_TYPE_DOUBLE: range->value = truncated(attributes->payload.dValue); break;
  case NVTX_PAYLOAD_TYPE_FLOAT: range->value = truncated((double)attributes->payload.fValue); break;
  case NVTX_PAYLOAD_TYPE_EXT:
    if (attributes->reserved0 > 0) /* the number of payloads; the first one is kept */
      range->payload = (const nvtxPayloadData_t *)(uintptr_t)attributes->payload.ullValue;
    break;
  default: break;
  }
}

/* Whether a struct of this size, as its maker knew it, has the field. */
#define HAS_FIELD(attributes, field)                                                                                   \
  ((attributes)->size >= offsetof(nvtxEventAttributes_t, field) + sizeof((attributes)->field))

static struct sl_nvtx_range read_attributes(uint16_t domain, const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = {.domain = domain};
  if (!attributes)
    return range;
  if (HAS_FIELD(attributes, category) && attributes->category <= UINT16_MAX)
    range.category = (uint16_t)attributes->category; /* larger ones have no room in the event and become "none" */
  if (HAS_FIELD(attributes, payload))
    read_payload(attributes, &range);
  if (HAS_FIELD(attributes, message))
    range.name = message_name(attributes);
  return range;
}

/* ---- recording ---- */

static _Atomic uint64_t last_range_id; /* of start/end ranges; 0 is never given out */

static void append_payload(uint16_t domain, const nvtxPayloadData_t *payload) {
  /* SIZE_MAX says "find out yourself": then the schema's id alone is recorded. */
  size_t length = payload->payload && payload->size != SIZE_MAX ? payload->size : 0;
  if (length > PAYLOAD_MAX)
    length = PAYLOAD_MAX;
  struct sl_event_range_payload event = {.schema = payload->schemaId, .length = (uint32_t)length, .domain = domain};
  sl_log_append(SL_EVENT_range_payload, &event, sizeof(event), length ? payload->payload : NULL, length);
}

int sl_nvtx_push(const struct sl_nvtx_range *range) {
  struct sl_thread *thread = sl_thread();
  if (!thread) {
    sl_log_gap("nvtx", "memory was short", 1);
    return 0;
  }
  uint32_t level = thread->levels[range->domain]++;
  if (level >= LEVELS_MAX) {
    if (level == LEVELS_MAX)
      sl_log_gap("nvtx", "a thread opened more than 1024 ranges of one domain inside each other", 0);
    return (int)(level & INT32_MAX);
  }
  struct sl_event_range_push event = {
      .name = range->name, .domain = range->domain, .category = range->category, .value = range->value};
  /* A payload belongs to the event before it, so it is lost with it. */
  if (sl_log_append_on(thread, SL_EVENT_range_push, &event, sizeof(event)) && range->payload)
    append_payload(range->domain, range->payload);
  return (int)level;
}

int sl_nvtx_pop(uint16_t domain, const nvtxPayloadData_t *payload) {
  struct sl_thread *thread = sl_thread();
  if (!thread || thread->levels[domain] == 0)
    return -1; /* NVTX: a negative value when there is nothing to end */
  uint32_t level = --thread->levels[domain];
  if (level < LEVELS_MAX) {
    struct sl_event_range_pop event = {.domain = domain, .depth = level};
    if (sl_log_append_on(thread, SL_EVENT_range_pop, &event, sizeof(event)) && payload)
      append_payload(domain, payload);
  }
  return (int)(level & INT32_MAX);
}

nvtxRangeId_t sl_nvtx_start(const struct sl_nvtx_range *range) {
  if (range->category == SL_KIND_step && range->domain != 0 &&
      range->domain == atomic_load_explicit(&own_domain, memory_order_relaxed) && sl_step_window_begin(range->value))
    sl_source_cupti_times_changed();
  uint64_t id = atomic_fetch_add_explicit(&last_range_id, 1, memory_order_relaxed) + 1;
  struct sl_event_range_start event = {
      .id = id, .name = range->name, .domain = range->domain, .category = range->category, .value = range->value};
  if (sl_log_append(SL_EVENT_range_start, &event, sizeof(event), NULL, 0) && range->payload)
    append_payload(range->domain, range->payload);
  return id;
}

void sl_nvtx_end(nvtxRangeId_t id) {
  struct sl_event_range_end event = {.id = id};
  if (id != 0)
    sl_log_append(SL_EVENT_range_end, &event, sizeof(event), NULL, 0);
}

void sl_nvtx_mark(const struct sl_nvtx_range *range) {
  struct sl_event_range_mark event = {
      .name = range->name, .domain = range->domain, .category = range->category, .value = range->value};
  if (sl_log_append(SL_EVENT_range_mark, &event, sizeof(event), NULL, 0) && range->payload)
    append_payload(range->domain, range->payload);
}

/* ---- NVTX's functions, as the tool sees them: the plain ones, then those with a domain ---- */

static int range_push_ex(const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = read_attributes(0, attributes);
  return sl_nvtx_push(&range);
}
static int range_push_a(const char *message) {
  return sl_nvtx_push(&(struct sl_nvtx_range){.name = sl_log_name(message)});
}
static int range_push_w(const wchar_t *message) {
  return sl_nvtx_push(&(struct sl_nvtx_range){.name = wide_name(message)});
}
static int range_pop(void) {
  return sl_nvtx_pop(0, NULL);
}
static nvtxRangeId_t range_start_ex(const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = read_attributes(0, attributes);
  return sl_nvtx_start(&range);
}
static nvtxRangeId_t range_start_a(const char *message) {
  return sl_nvtx_start(&(struct sl_nvtx_range){.name = sl_log_name(message)});
}
static nvtxRangeId_t range_start_w(const wchar_t *message) {
  return sl_nvtx_start(&(struct sl_nvtx_range){.name = wide_name(message)});
}
static void mark_ex(const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = read_attributes(0, attributes);
  sl_nvtx_mark(&range);
}
static void mark_a(const char *message) {
  sl_nvtx_mark(&(struct sl_nvtx_range){.name = sl_log_name(message)});
}
static void mark_w(const wchar_t *message) {
  sl_nvtx_mark(&(struct sl_nvtx_range){.name = wide_name(message)});
}

static int domain_range_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = read_attributes(sl_nvtx_domain(domain), attributes);
  return sl_nvtx_push(&range);
}
static int domain_range_pop(nvtxDomainHandle_t domain) {
  return sl_nvtx_pop(sl_nvtx_domain(domain), NULL);
}
static nvtxRangeId_t domain_range_start_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = read_attributes(sl_nvtx_domain(domain), attributes);
  return sl_nvtx_start(&range);
}
static void domain_range_end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
  sl_nvtx_end(id);
}
static void domain_mark_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes) {
  struct sl_nvtx_range range = read_attributes(sl_nvtx_domain(domain), attributes);
  sl_nvtx_mark(&range);
}
static nvtxStringHandle_t domain_register_string_a(nvtxDomainHandle_t domain, const char *text) {
  return registered_handle(sl_log_name(text));
}
static nvtxStringHandle_t domain_register_string_w(nvtxDomainHandle_t domain, const wchar_t *text) {
  return registered_handle(wide_name(text));
}
static nvtxDomainHandle_t domain_create_a(const char *name) {
  return create_domain(sl_log_name(name));
}
static nvtxDomainHandle_t domain_create_w(const wchar_t *name) {
  return create_domain(wide_name(name));
}
/* Resources (named locks, devices, …) are not recorded, but callers may take NULL for a failure. */
static nvtxResourceHandle_t resource_create(nvtxDomainHandle_t domain, nvtxResourceAttributes_t *attributes) {
  return (nvtxResourceHandle_t)&domains[0];
}
static void resource_destroy(nvtxResourceHandle_t resource) {}
static void initialize(const void *reserved) {}

/* ---- attaching ---- */

struct handler {
  unsigned id; /* NVTX_CBID_… */
  NvtxFunctionPointer function;
};

#define HANDLER(id, function)                                                                                          \
  { NVTX_CBID_##id, (NvtxFunctionPointer)(function) }

static const struct handler core_handlers[] = {
    HANDLER(CORE_MarkEx, mark_ex),
    HANDLER(CORE_MarkA, mark_a),
    HANDLER(CORE_MarkW, mark_w),
    HANDLER(CORE_RangeStartEx, range_start_ex),
    HANDLER(CORE_RangeStartA, range_start_a),
    HANDLER(CORE_RangeStartW, range_start_w),
    HANDLER(CORE_RangeEnd, sl_nvtx_end),
    HANDLER(CORE_RangePushEx, range_push_ex),
    HANDLER(CORE_RangePushA, range_push_a),
    HANDLER(CORE_RangePushW, range_push_w),
    HANDLER(CORE_RangePop, range_pop),
};

static const struct handler core2_handlers[] = {
    HANDLER(CORE2_DomainMarkEx, domain_mark_ex),
    HANDLER(CORE2_DomainRangeStartEx, domain_range_start_ex),
    HANDLER(CORE2_DomainRangeEnd, domain_range_end),
    HANDLER(CORE2_DomainRangePushEx, domain_range_push_ex),
    HANDLER(CORE2_DomainRangePop, domain_range_pop),
    HANDLER(CORE2_DomainResourceCreate, resource_create),
    HANDLER(CORE2_DomainResourceDestroy, resource_destroy),
    HANDLER(CORE2_DomainRegisterStringA, domain_register_string_a),
    HANDLER(CORE2_DomainRegisterStringW, domain_register_string_w),
    HANDLER(CORE2_DomainCreateA, domain_create_a),
    HANDLER(CORE2_DomainCreateW, domain_create_w),
    HANDLER(CORE2_DomainDestroy, domain_destroy),
    HANDLER(CORE2_Initialize, initialize),
};

/* Writes the handlers into a module's slots, as far as that library's copy of NVTX has them. Returns how many. */
static size_t attach(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module,
                     const struct handler *handlers, size_t count) {
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  size_t attached = 0;
  if (!callbacks->GetModuleFunctionTable(module, &table, &size) || !table)
    return 0;
  for (size_t i = 0; i < count; i++) {
    if (handlers[i].id < size && table[handlers[i].id]) {
      __atomic_store_n(table[handlers[i].id], handlers[i].function, __ATOMIC_RELEASE); /* other threads may read it */
      attached++;
    }
  }
  return attached;
}

void sl_source_nvtx_attach(NvtxGetExportTableFunc_t get_export_table) {
  static atomic_flag reported = ATOMIC_FLAG_INIT;
  const NvtxExportTableCallbacks *callbacks = get_export_table ? get_export_table(NVTX_ETID_CALLBACKS) : NULL;
  size_t attached = 0;
  if (callbacks && callbacks->struct_size >= sizeof(*callbacks) && callbacks->GetModuleFunctionTable) {
    attached += attach(callbacks, NVTX_CB_MODULE_CORE, core_handlers, sizeof(core_handlers) / sizeof(*core_handlers));
    attached +=
        attach(callbacks, NVTX_CB_MODULE_CORE2, core2_handlers, sizeof(core2_handlers) / sizeof(*core2_handlers));
  }
  if (attached == 0)
    sl_source_state("nvtx", "failed", "a library's copy of NVTX offers no functions to attach to");
  else if (!atomic_flag_test_and_set(&reported))
    sl_source_state("nvtx", "on", "");
}

/*
 * A field is known by the name that NCCL gives it in the schema of its payload, and read where the schema says; either
 * may be wrong in a damaged log.
 */
#include "nccl_payload.h"
#include "storage/grow.h"
#include "storage/hash_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define STATIC_SCHEMAS (1ull << 24) /* NCCL's schema ids count from here */

/* What a field means. NCCL's own names; they are matched whole, so that "Parent NCCL communicator ID" is not one. */
enum meaning {
  MEANING_none,
  MEANING_communicator,
  MEANING_bytes,
  MEANING_reduction,
  MEANING_root,
  MEANING_peer,
  MEANING_ranks,
  MEANING_rank
};

static const struct {
  const char *name;
  enum meaning meaning;
} meanings[] = {
    {"NCCL communicator ID", MEANING_communicator},
    {"Message size [bytes]", MEANING_bytes},
    {"Reduction operation", MEANING_reduction},
    {"Root", MEANING_root},
    {"Peer rank", MEANING_peer},
    {"No. of ranks", MEANING_ranks},
    {"Rank", MEANING_rank},
};

struct schema_key {
  uint64_t schema;
  uint64_t domain;
};

struct schema { /* fields of a layout, or values of an enumeration */
  struct schema_key key;
  struct sl_event_nvtx_schema_entry *entries;
  size_t count;
  UT_hash_handle hh;
};

struct sl_nccl_schemas {
  const struct sl_log *log;
  struct schema *layouts;
  struct schema *enumerations; /* apart: some versions of NCCL use one number for both */
};

struct sl_nccl_schemas *sl_nccl_schemas_new(const struct sl_log *log) {
  struct sl_nccl_schemas *schemas = calloc(1, sizeof *schemas);
  if (schemas)
    schemas->log = log;
  return schemas;
}

static void table_free(struct schema **table) {
  struct schema *schema, *next;
  HASH_ITER(hh, *table, schema, next) {
    HASH_DEL(*table, schema);
    free(schema->entries);
    free(schema);
  }
}

struct sl_nccl_schemas *sl_nccl_schemas_free(struct sl_nccl_schemas *schemas) {
  if (!schemas)
    return NULL;
  table_free(&schemas->layouts);
  table_free(&schemas->enumerations);
  free(schemas);
  return NULL;
}

static struct schema *schema_find(struct schema *table, uint32_t domain, uint64_t id) {
  struct schema_key key = {id, domain};
  struct schema *schema;
  HASH_FIND(hh, table, &key, sizeof key, schema);
  return schema;
}

int sl_nccl_schemas_add(struct sl_nccl_schemas *schemas, const struct sl_event_nvtx_schema_entry *entry) {
  struct schema **table = entry->type ? &schemas->layouts : &schemas->enumerations;
  const struct schema_key key = {entry->schema, entry->domain};
  struct schema *schema;
  SL_HASH_FIND_OR_ADD(*table, key, key, schema);
  if (!schema)
    return -ENOMEM;
  struct sl_event_nvtx_schema_entry *added = SL_LIST_ADD(schema->entries, schema->count);
  if (!added)
    return -ENOMEM;
  *added = *entry;
  return 0;
}

/* ---- values ---- */

/* NVTX's numbers of the integer types (nvToolsExtPayload.h); they are part of its interface and stay. */
static uint32_t integer_bytes(uint64_t type, bool *is_signed) {
  static const struct {
    uint8_t bytes, is_signed;
  } types[] = {
      [1] = {1, 1},  [2] = {1, 0},  [3] = {2, 1},  [4] = {2, 0},  [5] = {4, 1},  [6] = {4, 0},  [7] = {8, 1},
      [8] = {8, 0},  [9] = {8, 1},  [10] = {8, 0}, [11] = {1, 1}, [12] = {1, 0}, [13] = {2, 1}, [14] = {2, 0},
      [15] = {4, 1}, [16] = {4, 0}, [17] = {8, 1}, [18] = {8, 0}, [22] = {8, 0}, [23] = {8, 0},
  };
  if (type >= sizeof types / sizeof types[0])
    return 0;
  *is_signed = types[type].is_signed;
  return types[type].bytes;
}

static bool value_read(const void *data, uint32_t length, uint64_t offset, uint32_t bytes, bool is_signed,
                       uint64_t *out) {
  if (!bytes || offset > length || length - offset < bytes)
    return false;
  uint64_t value = 0; /* little-endian: a narrower value fills the low bytes */
  memcpy(&value, (const char *)data + offset, bytes);
  if (is_signed && bytes < 8 && value >> (8 * bytes - 1))
    value |= UINT64_MAX << (8 * bytes);
  *out = value;
  return true;
}

static void value_set(struct sl_nccl_payload *out, enum meaning meaning, uint64_t value) {
  switch (meaning) {
  case MEANING_communicator:
    out->has_communicator = true;
    out->communicator = value;
    break;
  case MEANING_bytes:
    out->has_bytes = true;
    out->bytes = value;
    break;
  case MEANING_root: out->root = (int64_t)value; break;
  case MEANING_peer: out->peer = (int64_t)value; break;
  case MEANING_ranks: out->ranks = (int64_t)value; break;
  case MEANING_rank: out->rank = (int64_t)value; break;
  default: break;
  }
}

static const char *value_name(const struct sl_nccl_schemas *schemas, const struct schema *enumeration, uint64_t value) {
  for (size_t i = 0; i < enumeration->count; i++)
    if (enumeration->entries[i].offset == value)
      return sl_log_string(schemas->log, enumeration->entries[i].name);
  return NULL; /* a reduction that the program made itself */
}

static enum meaning meaning_of(const char *name) {
  for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
    if (strcmp(name, meanings[i].name) == 0)
      return meanings[i].meaning;
  return MEANING_none;
}

static void read_by_schema(const struct sl_nccl_schemas *schemas, const struct schema *schema, const void *data,
                           uint32_t length, struct sl_nccl_payload *out) {
  for (size_t i = 0; i < schema->count; i++) {
    const struct sl_event_nvtx_schema_entry *entry = &schema->entries[i];
    enum meaning meaning = meaning_of(sl_log_string(schemas->log, entry->name));
    uint64_t value = 0;
    bool is_signed = false;
    uint32_t bytes = integer_bytes(entry->type, &is_signed);
    if (meaning == MEANING_none)
      continue;
    if (meaning != MEANING_reduction) {
      if (value_read(data, length, entry->offset, bytes, is_signed, &value))
        value_set(out, meaning, value);
      continue;
    }
    /* The type is the id of an enumeration: a C enum, of the size of an int. */
    const struct schema *names = schema_find(schemas->enumerations, entry->domain, entry->type);
    if (names && value_read(data, length, entry->offset, 4, false, &value))
      out->reduction = value_name(schemas, names, value);
  }
}

/* ---- layouts of old logs ---- */

/*
 * Up to 2.24 an operation's payload starts with its size, from 2.25 on with the communicator; what follows the size is
 * an int. `extra` tells what it is; Reduce has two of them, whose order is not relied on.
 */
static const struct {
  uint8_t old_bytes, new_bytes; /* length of the payload without and with a communicator */
  uint8_t extra;                /* enum meaning */
} layouts[] = {
    [0] = {12, 24, MEANING_ranks},     [2] = {12, 24, MEANING_ranks},     [3] = {12, 24, MEANING_ranks},
    [4] = {8, 16, MEANING_none},       [5] = {16, 24, MEANING_reduction}, [6] = {16, 24, MEANING_root},
    [7] = {16, 24, MEANING_reduction}, [8] = {16, 24, MEANING_none},      [9] = {16, 24, MEANING_peer},
    [10] = {16, 24, MEANING_peer},     [11] = {12, 24, MEANING_ranks},    [12] = {12, 24, MEANING_ranks},
    [16] = {8, 16, MEANING_none},      [17] = {16, 24, MEANING_root},     [18] = {16, 24, MEANING_root},
};

static void read_by_length(uint64_t schema, const void *data, uint32_t length, struct sl_nccl_payload *out) {
  static const char *const reductions[] = {"Sum", "Product", "Max", "Min", "Avg"};
  uint64_t number = schema - STATIC_SCHEMAS, value = 0;
  if (schema < STATIC_SCHEMAS || number >= sizeof layouts / sizeof layouts[0] || !layouts[number].old_bytes)
    return;
  bool with_communicator = length == layouts[number].new_bytes;
  if (!with_communicator && length != layouts[number].old_bytes)
    return;
  uint64_t offset = 0;
  if (with_communicator) {
    value_read(data, length, 0, 8, false, &value);
    value_set(out, MEANING_communicator, value);
    offset = 8;
  }
  if (layouts[number].extra == MEANING_ranks) {
    if (value_read(data, length, offset, 4, true, &value))
      value_set(out, MEANING_ranks, value);
    if (value_read(data, length, offset + 4, 4, true, &value))
      value_set(out, MEANING_rank, value);
    return;
  }
  if (value_read(data, length, offset, 8, false, &value))
    value_set(out, MEANING_bytes, value);
  if (layouts[number].extra == MEANING_none || !value_read(data, length, offset + 8, 4, true, &value))
    return;
  if (layouts[number].extra == MEANING_reduction)
    out->reduction = value < sizeof reductions / sizeof reductions[0] ? reductions[value] : NULL;
  else
    value_set(out, layouts[number].extra, value);
}

void sl_nccl_payload_read(const struct sl_nccl_schemas *schemas, uint32_t domain, uint64_t schema, const void *data,
                          uint32_t length, struct sl_nccl_payload *out) {
  *out = (struct sl_nccl_payload){.root = -1, .peer = -1, .ranks = -1, .rank = -1};
  const struct schema *layout = schema_find(schemas->layouts, domain, schema);
  if (layout)
    read_by_schema(schemas, layout, data, length, out);
  else
    read_by_length(schema, data, length, out);
}

/* Names in kernels, and the operations that such kernels run. */
static const struct {
  const char *kernel;
  const char *operations[6];
} kinds[] = {
    {"AllGather", {"AllGather"}},
    {"AllReduce", {"AllReduce"}},
    {"Broadcast", {"Broadcast", "Bcast"}},
    {"ReduceScatter", {"ReduceScatter"}},
    {"Reduce", {"Reduce"}},
    {"SendRecv", {"Send", "Recv", "AlltoAll", "Gather", "Scatter"}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

int sl_kernel_kind(const char *operation) {
  for (int i = 0; i < KINDS; i++)
    for (int j = 0; j < 6 && kinds[i].operations[j]; j++)
      if (strcmp(operation, kinds[i].operations[j]) == 0)
        return i;
  return -1;
}

const char *sl_kernel_word(int kind) {
  return kind >= 0 && kind < KINDS ? kinds[kind].kernel : NULL;
}

bool sl_nccl_makes_communicator(const char *operation) {
  return strncmp(operation, "CommInit", 8) == 0 || strcmp(operation, "CommSplit") == 0 ||
         strcmp(operation, "CommShrink") == 0 || strcmp(operation, "CommGrow") == 0;
}

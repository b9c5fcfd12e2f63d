/*
 * A stack machine with a memory: values wait on the stack until a container takes them; PUT remembers the one on top,
 * GET brings it back. A value is 8 bytes: texts are places in the file, containers numbers.
 */
#include "pickle_reader.h"

#include "pickle_opcodes.h"
#include "storage/grow.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX (((uint64_t)1 << 56) - 1)
#define INLINE_MAX (((int64_t)1 << 55) - 1) /* larger whole numbers, and all others, are in a list of their own */

#define COUNT_MAX (UINT32_MAX - 1) /* of values in a container */
#define REPLACED UINT32_MAX

struct container { /* there are millions: 16 bytes */
  union {
    struct sl_pickled *items; /* of a dictionary keys and values in turn; owned */
    uint64_t number;          /* that stands for them, where replaced */
  };
  uint32_t count;
  uint32_t capacity; /* REPLACED: there are no items any more */
};

static bool is_replaced(const struct container *container) {
  return container->capacity == REPLACED;
}

struct sl_unpickler {
  const unsigned char *data;
  size_t length, at, opcode_at;
  const char *name;
  sl_unpickle_dict *dict;
  void *context;
  struct sl_pickled *stack;
  size_t depth, stack_capacity;
  struct sl_pickled *memory;
  size_t memory_count, memory_capacity;
  struct container *containers;
  size_t container_count, container_capacity;
  int64_t *numbers; /* that do not fit into a value; of a float its bits */
  size_t number_count, number_capacity;
  struct sl_error *error;
};

static const struct sl_pickled absent = {.kind = SL_PICKLED_none};

static int damaged(struct sl_unpickler *p, const char *what) {
  return sl_error_set(p->error, -EBADMSG, "%s is damaged: %s at byte %zu", p->name, what, p->opcode_at);
}

static struct sl_pickled value_of(enum sl_pickle_kind kind, uint64_t number) {
  return (struct sl_pickled){.number = number & NUMBER_MAX, .kind = (uint64_t)kind & 0xff};
}

/* ---- the file ---- */

static bool has(const struct sl_unpickler *p, uint64_t bytes) {
  return bytes <= p->length - p->at;
}

/* Little-endian, 1 to 8 bytes that are there. */
static uint64_t take(struct sl_unpickler *p, size_t bytes) {
  uint64_t number = 0;
  memcpy(&number, p->data + p->at, bytes);
  p->at += bytes;
  return le64toh(number);
}

/* ---- the stack and the memory ---- */

static int push(struct sl_unpickler *p, struct sl_pickled value) {
  struct sl_pickled *added = SL_LIST_ADD_ROOM(p->stack, p->depth, &p->stack_capacity);
  if (!added)
    return sl_no_memory(p->error);
  *added = value;
  return 0;
}

static int push_number(struct sl_unpickler *p, enum sl_pickle_kind kind, int64_t number) {
  if (kind == SL_PICKLED_integer && number >= 0 && number <= INLINE_MAX)
    return push(p, value_of(kind, (uint64_t)number));
  int64_t *added = SL_LIST_ADD_ROOM(p->numbers, p->number_count, &p->number_capacity);
  if (!added)
    return sl_no_memory(p->error);
  *added = number;
  return push(p, value_of(kind, (uint64_t)INLINE_MAX + p->number_count));
}

static int64_t number_of(const struct sl_unpickler *p, struct sl_pickled value) {
  return value.number <= (uint64_t)INLINE_MAX ? (int64_t)value.number
                                              : p->numbers[value.number - (uint64_t)INLINE_MAX - 1];
}

static int push_container(struct sl_unpickler *p, enum sl_pickle_kind kind) {
  struct container *added = SL_LIST_ADD_ROOM(p->containers, p->container_count, &p->container_capacity);
  if (!added)
    return sl_no_memory(p->error);
  *added = (struct container){0};
  return push(p, value_of(kind, p->container_count - 1));
}

/* Each PUT takes 2 bytes of the file, so a number above its length is of nobody's pickle. */
static int put(struct sl_unpickler *p, uint64_t number) {
  if (!p->depth || p->stack[p->depth - 1].kind == SL_PICKLED_mark)
    return damaged(p, "there is nothing to remember");
  if (number >= p->length)
    return damaged(p, "a memory that no writer has");
  if (number >= p->memory_capacity) {
    const size_t more = 2 * (number < 512 ? 512 : (size_t)number);
    struct sl_pickled *grown = reallocarray(p->memory, more, sizeof *grown);
    if (!grown)
      return sl_no_memory(p->error);
    p->memory = grown;
    p->memory_capacity = more;
  }
  for (; p->memory_count <= number; p->memory_count++)
    p->memory[p->memory_count] = value_of(SL_PICKLED_mark, 0);
  p->memory[number] = p->stack[p->depth - 1];
  return 0;
}

static int get(struct sl_unpickler *p, uint64_t number) {
  if (number >= p->memory_count || p->memory[number].kind == SL_PICKLED_mark)
    return damaged(p, "something is meant that was not there before");
  return push(p, p->memory[number]);
}

/* Where the values above the last mark begin; the mark is one below. */
static bool find_mark(const struct sl_unpickler *p, size_t *first) {
  for (size_t i = p->depth; i > 0; i--)
    if (p->stack[i - 1].kind == SL_PICKLED_mark) {
      *first = i;
      return true;
    }
  return false;
}

/* ---- containers ---- */

static int append(struct sl_unpickler *p, struct container *list, const struct sl_pickled *values, size_t count) {
  if (is_replaced(list))
    return damaged(p, "something is added to what was whole");
  if (count > COUNT_MAX - list->count)
    return damaged(p, "a list is longer than any snapshot has");
  if (list->count + count > list->capacity) {
    const size_t doubled = 2 * (list->count + count),
                 more = list->count && doubled < COUNT_MAX ? doubled : list->count + count;
    struct sl_pickled *grown = reallocarray(list->items, more, sizeof *grown);
    if (!grown)
      return sl_no_memory(p->error);
    list->items = grown;
    list->capacity = (uint32_t)more;
  }
  if (count)
    memcpy(list->items + list->count, values, count * sizeof *values);
  list->count += (uint32_t)count;
  return 0;
}

/* The values from first on go into the list, or dictionary, below. */
static int append_above(struct sl_unpickler *p, size_t first, size_t below) {
  if (below == 0 || p->stack[below - 1].kind != SL_PICKLED_list)
    return damaged(p, "there is no list to add to");
  int r = append(p, &p->containers[p->stack[below - 1].number], p->stack + first, p->depth - first);
  p->depth = below;
  return r;
}

static int set_above(struct sl_unpickler *p, size_t first, size_t below) {
  if (below == 0 || p->stack[below - 1].kind != SL_PICKLED_dict)
    return damaged(p, "there is no dictionary to add to");
  if ((p->depth - first) % 2)
    return damaged(p, "a key has no value");
  const uint64_t number = p->stack[below - 1].number;
  const bool is_first = p->containers[number].count == 0 && !is_replaced(&p->containers[number]);
  struct sl_pickled own = absent;
  int r = 0;
  if (is_first && p->depth > first)
    r = p->dict(p->context, p, (const struct sl_pickled_pair *)(const void *)(p->stack + first), (p->depth - first) / 2,
                &own, p->error);
  if (r > 0) {
    /* It may have been remembered before it was filled: memory finds the new value through the container. */
    p->containers[number] = (struct container){.number = (uint64_t)own.kind << 56 | own.number, .capacity = REPLACED};
    p->stack[below - 1] = own;
  } else if (r == 0) {
    struct container *dict = &p->containers[number];
    r = append(p, dict, p->stack + first, p->depth - first);
  }
  p->depth = below;
  return r < 0 ? r : 0;
}

static int tuple(struct sl_unpickler *p, size_t first, size_t below) {
  const size_t count = p->depth - first;
  int r = push_container(p, SL_PICKLED_tuple);
  if (r < 0)
    return r;
  const struct sl_pickled made = p->stack[p->depth - 1];
  r = append(p, &p->containers[made.number], p->stack + first, count);
  p->depth = below;
  return r < 0 ? r : push(p, made);
}

static int tuple_of(struct sl_unpickler *p, size_t count) {
  if (p->depth < count)
    return damaged(p, "a tuple has too few values");
  for (size_t i = p->depth - count; i < p->depth; i++)
    if (p->stack[i].kind == SL_PICKLED_mark)
      return damaged(p, "a tuple has too few values");
  return tuple(p, p->depth - count, p->depth - count);
}

/* DICT and LIST, of what is above the mark. */
static int container_of(struct sl_unpickler *p, enum sl_pickle_kind kind, size_t first) {
  int r = push_container(p, kind);
  if (r < 0)
    return r;
  struct sl_pickled made = p->stack[--p->depth];
  p->stack[first - 1] = made; /* in the mark's place */
  return kind == SL_PICKLED_dict ? set_above(p, first, first) : append_above(p, first, first);
}

/* ---- opcodes ---- */

static int text(struct sl_unpickler *p, size_t length_bytes, bool is_text) {
  if (!has(p, length_bytes))
    return damaged(p, "it ends in the middle");
  const size_t begins = p->at;
  const uint64_t length = take(p, length_bytes);
  if (!has(p, length) || length > UINT32_MAX)
    return damaged(p, "a text is longer than the file");
  p->at += (size_t)length;
  /* Where its length stands, and how many bytes that has. */
  const uint64_t size = length_bytes == 1 ? 0 : length_bytes == 4 ? 1 : 2;
  return push(p, value_of(is_text ? SL_PICKLED_text : SL_PICKLED_bytes, (uint64_t)begins << 2 | size));
}

/* Two's complement, of any length; more than 8 bytes that matter give the largest or smallest number. */
static int whole_number(struct sl_unpickler *p, size_t length_bytes) {
  if (!has(p, length_bytes))
    return damaged(p, "it ends in the middle");
  const uint64_t length = take(p, length_bytes);
  if (!has(p, length))
    return damaged(p, "a number is longer than the file");
  const unsigned char *bytes = p->data + p->at;
  p->at += (size_t)length;
  const bool negative = length && bytes[length - 1] & 0x80;
  uint64_t number = negative ? UINT64_MAX : 0;
  bool fits = true;
  for (uint64_t i = 0; i < length; i++)
    if (i < 8)
      number = (number & ~((uint64_t)0xff << 8 * i)) | (uint64_t)bytes[i] << 8 * i;
    else
      fits = fits && bytes[i] == (negative ? 0xff : 0);
  fits = fits && (length < 8 || (number >> 63 != 0) == negative);
  return push_number(p, SL_PICKLED_integer, fits ? (int64_t)number : negative ? INT64_MIN : INT64_MAX);
}

static int fixed_number(struct sl_unpickler *p, size_t bytes) {
  if (!has(p, bytes))
    return damaged(p, "it ends in the middle");
  const uint64_t number = take(p, bytes);
  return push_number(p, SL_PICKLED_integer, bytes == 4 ? (int32_t)(uint32_t)number : (int64_t)number);
}

static int floating(struct sl_unpickler *p) {
  if (!has(p, 8))
    return damaged(p, "it ends in the middle");
  return push_number(p, SL_PICKLED_float, (int64_t)__builtin_bswap64(take(p, 8))); /* the only one that is big-endian */
}

static int indexed(struct sl_unpickler *p, size_t bytes, int (*what)(struct sl_unpickler *p, uint64_t number)) {
  return has(p, bytes) ? what(p, take(p, bytes)) : damaged(p, "it ends in the middle");
}

static int refused(struct sl_unpickler *p, const char *opcode) {
  return sl_error_set(
      p->error, -EBADMSG,
      "%s asks to load or call Python code (%s at byte %zu), which no memory snapshot does; shardledger "
      "never runs what is in a file, and leaves it",
      p->name, opcode, p->opcode_at);
}

/* The name of an opcode that would run code; NULL: it is another one. */
static const char *code_opcode(int opcode) {
  static const struct {
    int opcode;
    const char *name;
  } list[] = {
      {SL_PICKLE_GLOBAL, "GLOBAL"},       {SL_PICKLE_STACK_GLOBAL, "STACK_GLOBAL"},
      {SL_PICKLE_INST, "INST"},           {SL_PICKLE_OBJ, "OBJ"},
      {SL_PICKLE_NEWOBJ, "NEWOBJ"},       {SL_PICKLE_NEWOBJ_EX, "NEWOBJ_EX"},
      {SL_PICKLE_REDUCE, "REDUCE"},       {SL_PICKLE_BUILD, "BUILD"},
      {SL_PICKLE_EXT1, "EXT1"},           {SL_PICKLE_EXT2, "EXT2"},
      {SL_PICKLE_EXT4, "EXT4"},           {SL_PICKLE_PERSID, "PERSID"},
      {SL_PICKLE_BINPERSID, "BINPERSID"},
  };
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
    if (list[i].opcode == opcode)
      return list[i].name;
  return NULL;
}

static int read_marked(struct sl_unpickler *p, int opcode) {
  size_t first;
  if (!find_mark(p, &first))
    return damaged(p, "a beginning is missing");
  switch (opcode) {
  case SL_PICKLE_SETITEMS: return set_above(p, first, first - 1);
  case SL_PICKLE_APPENDS: return append_above(p, first, first - 1);
  case SL_PICKLE_TUPLE: return tuple(p, first, first - 1);
  case SL_PICKLE_DICT: return container_of(p, SL_PICKLED_dict, first);
  default: return container_of(p, SL_PICKLED_list, first);
  }
}

static int read_unknown(struct sl_unpickler *p, int opcode) {
  const char *name = code_opcode(opcode);
  char word[48];
  if (name)
    return refused(p, name);
  snprintf(word, sizeof word, "no memory snapshot has an opcode 0x%02x", (unsigned)opcode);
  return damaged(p, word);
}

/* What stands on top belongs to nobody: a mark is none. */
static int read_item(struct sl_unpickler *p, int opcode) {
  const size_t count = opcode == SL_PICKLE_APPEND ? 1 : opcode == SL_PICKLE_SETITEM ? 2 : 0;
  if (p->depth < count + 1)
    return damaged(p, "a value is missing");
  for (size_t i = p->depth - (count ? count : 1); i < p->depth; i++)
    if (p->stack[i].kind == SL_PICKLED_mark && count)
      return damaged(p, "a value is missing");
  if (opcode == SL_PICKLE_POP)
    return p->depth--, 0;
  return count == 1 ? append_above(p, p->depth - 1, p->depth - 1) : set_above(p, p->depth - 2, p->depth - 2);
}

/* 0 or a negative errno. */
static int read_opcode(struct sl_unpickler *p, int opcode) {
  switch (opcode) {
  case SL_PICKLE_MARK: return push(p, value_of(SL_PICKLED_mark, 0));
  case SL_PICKLE_NONE: return push(p, absent);
  case SL_PICKLE_NEWTRUE: return push(p, value_of(SL_PICKLED_bool, 1));
  case SL_PICKLE_NEWFALSE: return push(p, value_of(SL_PICKLED_bool, 0));
  case SL_PICKLE_BININT: return fixed_number(p, 4);
  case SL_PICKLE_BININT1: return fixed_number(p, 1);
  case SL_PICKLE_BININT2: return fixed_number(p, 2);
  case SL_PICKLE_LONG1: return whole_number(p, 1);
  case SL_PICKLE_LONG4: return whole_number(p, 4);
  case SL_PICKLE_BINFLOAT: return floating(p);
  case SL_PICKLE_SHORT_BINUNICODE:
  case SL_PICKLE_SHORT_BINSTRING: return text(p, 1, true);
  case SL_PICKLE_BINUNICODE:
  case SL_PICKLE_BINSTRING: return text(p, 4, true);
  case SL_PICKLE_BINUNICODE8: return text(p, 8, true);
  case SL_PICKLE_SHORT_BINBYTES: return text(p, 1, false);
  case SL_PICKLE_BINBYTES: return text(p, 4, false);
  case SL_PICKLE_BINBYTES8:
  case SL_PICKLE_BYTEARRAY8: return text(p, 8, false);
  case SL_PICKLE_EMPTY_DICT: return push_container(p, SL_PICKLED_dict);
  case SL_PICKLE_EMPTY_LIST: return push_container(p, SL_PICKLED_list);
  case SL_PICKLE_EMPTY_TUPLE: return push_container(p, SL_PICKLED_tuple);
  case SL_PICKLE_TUPLE1: return tuple_of(p, 1);
  case SL_PICKLE_TUPLE2: return tuple_of(p, 2);
  case SL_PICKLE_TUPLE3: return tuple_of(p, 3);
  case SL_PICKLE_SETITEMS:
  case SL_PICKLE_APPENDS:
  case SL_PICKLE_TUPLE:
  case SL_PICKLE_DICT:
  case SL_PICKLE_LIST: return read_marked(p, opcode);
  case SL_PICKLE_APPEND:
  case SL_PICKLE_SETITEM:
  case SL_PICKLE_POP: return read_item(p, opcode);
  case SL_PICKLE_BINPUT: return indexed(p, 1, put);
  case SL_PICKLE_LONG_BINPUT: return indexed(p, 4, put);
  case SL_PICKLE_MEMOIZE: return put(p, p->memory_count);
  case SL_PICKLE_BINGET: return indexed(p, 1, get);
  case SL_PICKLE_LONG_BINGET: return indexed(p, 4, get);
  case SL_PICKLE_FRAME: /* how much a reader may take at once */
    return has(p, 8) ? (void)take(p, 8), 0 : damaged(p, "it ends in the middle");
  case SL_PICKLE_PROTO: return has(p, 1) ? (void)take(p, 1), 0 : damaged(p, "it ends in the middle");
  default: return read_unknown(p, opcode);
  }
}

/* A dictionary that was remembered before it was whole. */
static struct sl_pickled resolved(const struct sl_unpickler *p, struct sl_pickled value) {
  if (value.kind != SL_PICKLED_dict || !is_replaced(&p->containers[value.number]))
    return value;
  const uint64_t own = p->containers[value.number].number;
  return (struct sl_pickled){.number = own & NUMBER_MAX, .kind = own >> 56};
}

static int read_all(struct sl_unpickler *p, struct sl_pickled *root) {
  while (p->at < p->length) {
    p->opcode_at = p->at;
    const int opcode = p->data[p->at++];
    if (opcode == SL_PICKLE_STOP) {
      if (p->depth != 1 || p->stack[0].kind == SL_PICKLED_mark)
        return damaged(p, "it ends with parts left over");
      *root = resolved(p, p->stack[0]);
      return 0;
    }
    int r = read_opcode(p, opcode);
    if (r < 0)
      return r;
    if (p->depth && (opcode == SL_PICKLE_BINGET || opcode == SL_PICKLE_LONG_BINGET))
      p->stack[p->depth - 1] = resolved(p, p->stack[p->depth - 1]);
  }
  p->opcode_at = p->length;
  return damaged(p, "its end is missing");
}

int sl_unpickle_read(const unsigned char *data, size_t length, const char *name, sl_unpickle_dict *dict, void *context,
                     struct sl_unpickler **out, struct sl_pickled *root, struct sl_error *error) {
  struct sl_unpickler *p = calloc(1, sizeof *p);
  *out = NULL;
  if (!p)
    return sl_no_memory(error);
  *p = (struct sl_unpickler){
      .data = data, .length = length, .name = name, .dict = dict, .context = context, .error = error};
  int r = read_all(p, root);
  if (r < 0)
    p = sl_unpickle_free(p);
  *out = p;
  return r;
}

struct sl_unpickler *sl_unpickle_free(struct sl_unpickler *p) {
  if (!p)
    return NULL;
  for (size_t i = 0; i < p->container_count; i++)
    if (!is_replaced(&p->containers[i]))
      free(p->containers[i].items);
  free(p->containers);
  free(p->stack);
  free(p->memory);
  free(p->numbers);
  free(p);
  return NULL;
}

/* ---- looking at values ---- */

size_t sl_unpickle_at(const struct sl_unpickler *p) {
  return p->at;
}

const struct sl_pickled *sl_unpickle_items(const struct sl_unpickler *p, struct sl_pickled list, size_t *count) {
  *count = 0;
  if (list.kind != SL_PICKLED_list && list.kind != SL_PICKLED_tuple)
    return NULL;
  const struct container *container = &p->containers[list.number];
  if (is_replaced(container))
    return NULL;
  *count = container->count;
  return container->items;
}

const struct sl_pickled_pair *sl_unpickle_pairs(const struct sl_unpickler *p, struct sl_pickled dict, size_t *count) {
  *count = 0;
  if (dict.kind != SL_PICKLED_dict || is_replaced(&p->containers[dict.number]))
    return NULL;
  *count = p->containers[dict.number].count / 2;
  return (const struct sl_pickled_pair *)(const void *)p->containers[dict.number].items;
}

void sl_unpickle_list_replace(struct sl_unpickler *p, struct sl_pickled list, uint64_t number) {
  if (list.kind != SL_PICKLED_list)
    return;
  struct container *container = &p->containers[list.number];
  if (!is_replaced(container))
    free(container->items);
  *container = (struct container){.number = number, .capacity = REPLACED};
}

uint64_t sl_unpickle_list_number(const struct sl_unpickler *p, struct sl_pickled list) {
  const bool is_known = list.kind == SL_PICKLED_list && is_replaced(&p->containers[list.number]);
  return is_known ? p->containers[list.number].number : UINT64_MAX;
}

const char *sl_unpickle_text(const struct sl_unpickler *p, struct sl_pickled text, size_t *length) {
  static const size_t sizes[] = {1, 4, 8};
  *length = 0;
  if (text.kind != SL_PICKLED_text)
    return NULL;
  const size_t at = (size_t)(text.number >> 2), bytes = sizes[text.number & 3];
  uint64_t number = 0;
  memcpy(&number, p->data + at, bytes);
  *length = (size_t)le64toh(number);
  return (const char *)p->data + at + bytes;
}

int64_t sl_unpickle_number(const struct sl_unpickler *p, struct sl_pickled value) {
  return value.kind == SL_PICKLED_integer || value.kind == SL_PICKLED_bool ? number_of(p, value) : 0;
}

/* Adds up NCCL's calls in a temporary table, and gives SQL a median. */
#include "commands/nccl_parts.h"

#include "storage/grow.h"
#include "storage/hash_table.h"
#include "viewer_sql.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* Columns of nccl_calls. */
enum { RANK, OPERATION, COMM, MODULE, KEYS };
enum { DURATION, DELAY, SPREAD, BYTES, SHARE, EXPOSED, TRANSFER, ALGORITHM, BUS, WAITED, NRANKS, VALUES };

/* What a part has of its calls: number, sum and greatest of a value, where another one is known, too. */
static const struct {
  int value, where;
} sums[] = {{DURATION, DURATION}, {DELAY, DELAY},     {SPREAD, SPREAD}, {SPREAD, WAITED},     {BYTES, BYTES},
            {SHARE, SHARE},       {EXPOSED, EXPOSED}, {SHARE, EXPOSED}, {TRANSFER, TRANSFER}, {ALGORITHM, TRANSFER},
            {BUS, TRANSFER},      {WAITED, WAITED},   {NRANKS, NRANKS}};
enum { SUMS = sizeof sums / sizeof sums[0], LISTS = 3 }; /* of the first three all values, too, for medians */

struct numbers {
  int64_t *values; /* owned */
  size_t count, room;
};

struct key { /* all of its bytes count, so it is zeroed first */
  int64_t rank, comm, module;
  int operation; /* index of parts.operations */
  bool has_comm, has_module;
};

struct part {
  struct key key;
  int64_t calls;
  struct numbers lists[LISTS];
  struct {
    int64_t count, whole, most; /* whole: the sum of integers */
    double real;                /* and that of others, of which the greatest is not asked for */
    bool is_real;
  } sums[SUMS];
  UT_hash_handle hh;
};

static int numbers_add(struct numbers *numbers, const int64_t *values, size_t count) {
  if (numbers->count + count > numbers->room) {
    size_t room = 2 * (numbers->count + count) + 8;
    int64_t *larger = reallocarray(numbers->values, room, sizeof *larger);
    if (!larger)
      return -1;
    numbers->values = larger;
    numbers->room = room;
  }
  memcpy(numbers->values + numbers->count, values, count * sizeof *values);
  numbers->count += count;
  return 0;
}

struct parts {
  struct part *table;
  char **operations; /* few; owned */
  size_t operation_count;
};

/* ---- the parts ---- */

/* The number of an operation's name, or -1 without memory. */
static int operation_of(struct parts *parts, const char *name) {
  for (size_t i = 0; i < parts->operation_count; i++)
    if (strcmp(parts->operations[i], name) == 0)
      return (int)i;
  return sl_text_add(&parts->operations, &parts->operation_count, name) ? (int)parts->operation_count - 1 : -1;
}

/* The part that a call is in, new where there is none; NULL: no memory. */
static struct part *part_of(struct parts *parts, struct sl_statement *call) {
  struct key key;
  struct part *part = NULL;
  memset(&key, 0, sizeof key);
  key.rank = sl_column_int(call, RANK);
  key.comm = sl_column_int(call, COMM);
  key.module = sl_column_int(call, MODULE);
  key.has_comm = !sl_column_is_null(call, COMM);
  key.has_module = !sl_column_is_null(call, MODULE);
  key.operation = operation_of(parts, sl_column_text(call, OPERATION));
  if (key.operation < 0)
    return NULL;
  SL_HASH_FIND_OR_ADD(parts->table, key, key, part);
  return part;
}

static int part_add(struct part *part, struct sl_statement *call) {
  struct sl_number numbers[VALUES];
  part->calls++;
  for (int i = 0; i < VALUES; i++)
    numbers[i] = sl_column_number(call, KEYS + i);
  if (numbers[TRANSFER].type == SL_VALUE_int ? numbers[TRANSFER].whole <= 0 : numbers[TRANSFER].real <= 0)
    numbers[TRANSFER].type = SL_VALUE_null;
  for (int i = 0; i < SUMS; i++) {
    const struct sl_number *number = &numbers[sums[i].value];
    if (number->type == SL_VALUE_null || numbers[sums[i].where].type == SL_VALUE_null)
      continue;
    part->sums[i].count++;
    if (number->type != SL_VALUE_int) {
      part->sums[i].real += number->real;
      part->sums[i].is_real = true;
      continue;
    }
    const int64_t value = number->whole;
    part->sums[i].whole += value;
    if (part->sums[i].count == 1 || value > part->sums[i].most)
      part->sums[i].most = value;
    if (i < LISTS && numbers_add(&part->lists[i], &value, 1) < 0)
      return -1;
  }
  return 0;
}

static int part_write(const struct parts *parts, const struct part *part, struct sl_statement *insert,
                      struct sl_error *error) {
  int index = 0;
  sl_bind_int(insert, ++index, part->key.rank);
  sl_bind_text(insert, ++index, parts->operations[part->key.operation]);
  part->key.has_comm ? sl_bind_int(insert, ++index, part->key.comm) : sl_bind_null(insert, ++index);
  part->key.has_module ? sl_bind_int(insert, ++index, part->key.module) : sl_bind_null(insert, ++index);
  sl_bind_int(insert, ++index, part->calls);
  for (int i = 0; i < LISTS; i++)
    sl_bind_blob(insert, ++index, part->lists[i].values, part->lists[i].count * sizeof(int64_t));
  for (int i = 0; i < SUMS; i++) {
    int64_t count = part->sums[i].count;
    sl_bind_int(insert, ++index, count);
    if (part->sums[i].is_real)
      sl_bind_double(insert, ++index, part->sums[i].real + (double)part->sums[i].whole);
    else
      count ? sl_bind_int(insert, ++index, part->sums[i].whole) : sl_bind_null(insert, ++index);
    count ? sl_bind_int(insert, ++index, part->sums[i].most) : sl_bind_null(insert, ++index);
  }
  return sl_statement_run(insert, error);
}

/* ---- the function ---- */

static void swap(int64_t *a, int64_t *b) {
  int64_t kept = *a;
  *a = *b;
  *b = kept;
}

/* The lower one of two medians, by quickselect; changes the order of values, of which there is one at least. */
static int64_t select_median(int64_t *values, size_t count) {
  size_t wanted = (count - 1) / 2, low = 0, high = count - 1;
  while (low < high) {
    int64_t pivot = values[low + (high - low) / 2];
    size_t i = low, j = high;
    while (i <= j) {
      while (values[i] < pivot)
        i++;
      while (values[j] > pivot)
        j--;
      if (i > j)
        break;
      swap(&values[i++], &values[j]);
      if (j-- == 0)
        break;
    }
    /* Now values up to j are at most the pivot, those from i at least; between them all equal it. */
    if (j != SIZE_MAX && wanted <= j)
      high = j;
    else if (wanted >= i)
      low = i;
    else
      break;
  }
  return values[wanted];
}

static void median_step(sqlite3_context *context, int count, sqlite3_value **values) {
  struct numbers *numbers = sqlite3_aggregate_context(context, sizeof *numbers); /* zeroed */
  const void *blob = sqlite3_value_blob(values[0]);
  size_t bytes = (size_t)sqlite3_value_bytes(values[0]);
  if (!numbers || (blob && numbers_add(numbers, blob, bytes / sizeof(int64_t)) < 0))
    sqlite3_result_error_nomem(context);
}

static void median_end(sqlite3_context *context) {
  struct numbers *numbers = sqlite3_aggregate_context(context, 0);
  if (numbers && numbers->count)
    sqlite3_result_int64(context, select_median(numbers->values, numbers->count));
  if (numbers)
    free(numbers->values);
}

int sl_nccl_parts_make(struct sl_db *db, const struct sl_parameter *parameters, struct sl_error *error) {
  struct sl_statement *calls = NULL, *insert = NULL;
  struct parts parts = {.table = NULL};
  struct part *part, *next;
  int r = 0;
  if (sqlite3_create_function(sl_db_handle(db), "median", 1, SQLITE_UTF8, NULL, NULL, median_step, median_end))
    r = sl_no_memory(error);
  if (r == 0)
    r = sl_db_execute(db, sl_sql_nccl_part_table, error);
  if (r == 0)
    r = sl_db_prepare(db, sl_sql_nccl_part_add, &insert, error);
  if (r == 0)
    r = sl_db_ask(db, sl_sql_nccl_calls, parameters, &calls, error);
  while (r >= 0 && calls && (r = sl_statement_step(calls, error)) > 0) {
    part = part_of(&parts, calls);
    if (!part || part_add(part, calls) < 0)
      r = sl_no_memory(error);
  }
  calls = sl_statement_close(calls);
  HASH_ITER(hh, parts.table, part, next) {
    if (r == 0)
      r = part_write(&parts, part, insert, error);
    for (int i = 0; i < LISTS; i++)
      free(part->lists[i].values);
    HASH_DEL(parts.table, part);
    free(part);
  }
  for (size_t i = 0; i < parts.operation_count; i++)
    free(parts.operations[i]);
  free(parts.operations);
  insert = sl_statement_close(insert);
  return r < 0 ? r : sl_db_tell(db, sl_sql_nccl_parts_repeated, parameters, error);
}

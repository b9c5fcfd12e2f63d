/* Computes what FSDP2 shards, gathers and reduces from the shapes of parameters. */
#include "shards.h"

#include "storage/grow.h"
#include "storage/tables/sql_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sl_shards_free(struct sl_shards *shards) {
  for (size_t i = 0; i < shards->parameter_count; i++)
    free(shards->parameters[i].name);
  for (size_t i = 0; i < shards->unit_count; i++)
    free(shards->units[i].parameters);
  for (size_t i = 0; i < shards->group_count; i++)
    free(shards->groups[i].parameters);
  free(shards->parameters);
  free(shards->units);
  free(shards->groups);
  *shards = (struct sl_shards){0};
}

uint64_t sl_dtype_bytes(const char *dtype) {
  static const struct {
    const char *name;
    uint64_t bytes;
  } types[] = {{"float32", 4},       {"bfloat16", 2},    {"float16", 2},  {"float64", 8}, {"int64", 8},
               {"int32", 4},         {"int16", 2},       {"int8", 1},     {"uint8", 1},   {"bool", 1},
               {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"complex64", 8}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcmp(dtype, types[i].name) == 0)
      return types[i].bytes;
  return 0;
}

/* ---- reading ---- */

/* "768x3072": rows, and elements of each; "": a single number. */
static void shape_read(const char *text, uint64_t *rows, uint64_t *row_elements) {
  char *end = NULL;
  *rows = *row_elements = 1;
  if (!*text)
    return;
  *rows = strtoull(text, &end, 10);
  while (*end == 'x')
    *row_elements *= strtoull(end + 1, &end, 10);
}

/* "S0/8": split by rows over 8 ranks; "R/2 S0/8": in each of 2 groups; 0: in another way. */
static uint64_t ranks_read(const char *placement) {
  uint64_t split = 0;
  for (const char *at = placement; *at; at += strcspn(at, " "), at += *at == ' ') {
    unsigned ranks = 0;
    int length = 0;
    const bool is_split = sscanf(at, "S0/%u%n", &ranks, &length) == 1 && length;
    if (!is_split && !(sscanf(at, "R/%u%n", &ranks, &length) == 1 && length))
      return 0;
    if ((is_split && split) || !ranks || (at[length] && at[length] != ' '))
      return 0;
    split = is_split ? ranks : split;
  }
  return split ? split : 1;
}

static int parameter_add(struct sl_shards *shards, struct sl_statement *row) {
  struct sl_shard_parameter *p = SL_LIST_ADD(shards->parameters, shards->parameter_count);
  if (!p)
    return -ENOMEM;
  *p = (struct sl_shard_parameter){
      .name = strdup(sl_column_text(row, 1)),
      .number = sl_column_int(row, 0),
      .unit = sl_column_int(row, 8),
      .place = sl_column_int(row, 9),
      .element_bytes = sl_dtype_bytes(sl_column_text(row, 2)),
      .ranks = ranks_read(sl_column_text(row, 5)),
      .is_trained = sl_column_int(row, 6) != 0,
      .is_offloaded = sl_column_int(row, 7) != 0,
  };
  if (!p->name)
    return -ENOMEM;
  uint64_t row_elements;
  snprintf(p->dtype, sizeof p->dtype, "%s", sl_column_text(row, 2));
  shape_read(sl_column_text(row, 3), &p->rows, &p->row_elements);
  shape_read(sl_column_text(row, 4), &p->local_rows, &row_elements);
  if (row_elements != p->row_elements)
    p->ranks = 0;
  return 0;
}

static int unit_add(struct sl_shards *shards, struct sl_statement *row) {
  struct sl_shard_unit *unit = SL_LIST_ADD(shards->units, shards->unit_count);
  if (!unit)
    return -ENOMEM;
  *unit = (struct sl_shard_unit){
      .module = sl_column_int(row, 0),
      .ranks = (uint64_t)sl_column_int(row, 1),
      .replicas = (uint64_t)sl_column_int(row, 2),
      .reshard_ranks = (uint64_t)sl_column_int(row, 3),
      .groups = (uint64_t)sl_column_int(row, 4),
      .is_offloaded = sl_column_int(row, 7) != 0,
  };
  snprintf(unit->param_dtype, sizeof unit->param_dtype, "%s", sl_column_text(row, 5));
  snprintf(unit->reduce_dtype, sizeof unit->reduce_dtype, "%s", sl_column_text(row, 6));
  return 0;
}

/* Parameters come by number, which are nearly their places: SIZE_MAX where there is none. */
static size_t parameter_find(const struct sl_shards *shards, int64_t number) {
  for (size_t i = number > 0 ? (size_t)number - 1 : 0; i < shards->parameter_count; i++)
    if (shards->parameters[i].number == number)
      return i;
  for (size_t i = 0; i < shards->parameter_count; i++)
    if (shards->parameters[i].number == number)
      return i;
  return SIZE_MAX;
}

/* "1-148,150,?" */
static int group_add(struct sl_shards *shards, struct sl_statement *row) {
  struct sl_shard_group *group = SL_LIST_ADD(shards->groups, shards->group_count);
  if (!group)
    return -ENOMEM;
  *group = (struct sl_shard_group){.optimizer = sl_column_int(row, 0), .is_whole = true};
  for (const char *p = sl_column_text(row, 1); *p;) {
    char *end = NULL;
    int64_t first = strtoll(p, &end, 10), last = first;
    if (end == p) {
      group->is_whole = false;
      return 0;
    }
    if (*end == '-')
      last = strtoll(end + 1, &end, 10);
    for (int64_t number = first; number <= last; number++) {
      const size_t index = parameter_find(shards, number);
      if (index == SIZE_MAX) {
        group->is_whole = false;
        return 0;
      }
      if (shards->parameters[index].is_trained && sl_index_add(&group->parameters, &group->count, index) < 0)
        return -ENOMEM;
    }
    p = *end == ',' ? end + 1 : end;
    if (p == end && *p) {
      group->is_whole = false;
      return 0;
    }
  }
  return 0;
}

static int device_read(struct sl_shards *shards, struct sl_statement *row) {
  shards->multiprocessors = (uint64_t)sl_column_int(row, 0);
  shards->multiprocessor_threads = (uint64_t)sl_column_int(row, 1);
  return 0;
}

static int rows_read(struct sl_db *db, const char *sql, struct sl_shards *shards,
                     int (*add)(struct sl_shards *, struct sl_statement *), struct sl_error *error) {
  struct sl_statement *row = NULL;
  int r = sl_db_ask(db, sql, SL_WITH(SL_NUMBER(":rank", shards->rank)), &row, error);
  while (r >= 0 && (r = sl_statement_step(row, error)) > 0)
    if ((r = add(shards, row)) < 0)
      r = sl_no_memory(error);
  row = sl_statement_close(row);
  return r;
}

struct sl_shard_unit *sl_shards_unit(const struct sl_shards *shards, int64_t module) {
  for (size_t i = 0; i < shards->unit_count; i++)
    if (shards->units[i].module == module)
      return &shards->units[i];
  return NULL;
}

/* Each unit's own, in their order there. */
static int units_fill(struct sl_shards *shards) {
  for (size_t i = 0; i < shards->parameter_count; i++) {
    struct sl_shard_unit *unit = sl_shards_unit(shards, shards->parameters[i].unit);
    if (!unit)
      continue;
    if (sl_index_add(&unit->parameters, &unit->count, i) < 0)
      return -ENOMEM;
    for (size_t at = unit->count - 1; at > 0; at--) {
      uint32_t *pair = &unit->parameters[at - 1];
      if (shards->parameters[pair[0]].place <= shards->parameters[pair[1]].place)
        break;
      const uint32_t later = pair[0];
      pair[0] = pair[1];
      pair[1] = later;
    }
  }
  return 0;
}

int sl_shards_read(struct sl_db *db, uint32_t rank, struct sl_shards *out, struct sl_error *error) {
  *out = (struct sl_shards){.rank = rank};
  int r = rows_read(db, sl_shards_parameters_sql, out, parameter_add, error);
  r = r < 0 ? r : rows_read(db, sl_shards_units_sql, out, unit_add, error);
  r = r < 0 ? r : rows_read(db, sl_shards_groups_sql, out, group_add, error);
  r = r < 0 ? r : rows_read(db, sl_shards_device_sql, out, device_read, error);
  if (r == 0)
    r = sl_or_no_memory(units_fill(out), error);
  if (r < 0)
    sl_shards_free(out);
  return r;
}

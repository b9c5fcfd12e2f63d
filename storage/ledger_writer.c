#include "ledger_writer.h"

#include "../plugin/events.h"
#include "attribution.h"
#include "db.h"
#include "ledger.h"
#include "sql_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* INSERT statements by table; the parameters are the columns in the schema's order. */
#define INSERTS(X)                                                                                                     \
  X(meta, "INSERT OR REPLACE INTO meta VALUES(?,?)")                                                                   \
  X(rank, "INSERT INTO rank VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                                        \
  X(gap, "INSERT INTO gap VALUES(?,?,?,?,?)")                                                                          \
  X(module, "INSERT INTO module VALUES(?,?,?,?,?,?,?,?,?,?,?)")                                                        \
  X(step, "INSERT INTO step VALUES(?,?,NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                                   \
  X(phase, "INSERT INTO phase VALUES(?,?,?,?,?,?,?,?,?,?,?)")                                                          \
  X(allocation, "INSERT INTO allocation VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                            \
  X(segment, "INSERT INTO segment VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?)")                                               \
  X(gpu_code, "INSERT INTO gpu_code VALUES(?,?,?,?,?,?,?,?)")                                                          \
  X(context, "INSERT INTO context VALUES(?,?,?,?,?)")                                                                  \
  X(snapshot, "INSERT OR REPLACE INTO snapshot VALUES(?,?,?,?,?,?,?,?,?)")                                             \
  X(peak, "INSERT INTO peak VALUES(?,?,?,?,?,?,?,?)")                                                                  \
  X(peak_category, "INSERT INTO peak_category VALUES(?,?,?,?,?,?)")                                                    \
  X(peak_owner, "INSERT INTO peak_owner VALUES(?,?,?,?,?,?,?,?)")                                                      \
  X(device_sample, "INSERT INTO device_sample VALUES(?,?,?,?,?,?,?)")                                                  \
  X(device_owner, "INSERT INTO device_owner VALUES(?,?,?,?,?)")                                                        \
  X(oom, "INSERT INTO oom VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                                                        \
  X(oom_owner, "INSERT INTO oom_owner VALUES(?,?,?,?,?,?,?,?)")                                                        \
  X(kernel, "INSERT INTO kernel VALUES(?,?,?,?,?,?,?)")                                                                \
  X(memcpy, "INSERT INTO memcpy VALUES(?,?,?,?,?,?,?,?)")                                                              \
  X(memset, "INSERT INTO memset VALUES(?,?,?,?,?,?,?)")                                                                \
  X(collective, "INSERT INTO collective VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULL)")               \
  X(communicator, "INSERT INTO communicator VALUES(?,?,?,?,?,?)")                                                      \
  X(source, "INSERT INTO source VALUES(?,?,?,?,?)")

enum insert {
#define X(table, sql) INSERT_##table,
  INSERTS(X)
#undef X
      INSERT_count,
};

static const char *const insert_sql[INSERT_count] = {
#define X(table, sql) [INSERT_##table] = sql,
    INSERTS(X)
#undef X
};

struct sl_ledger_writer {
  struct sl_db *db;                           /* NULL: there is a listener only */
  struct sl_statement *inserts[INSERT_count]; /* NULL without a database: they take everything and write nothing */
  struct sl_ledger_listener listener;
  uint32_t rank;
};

int sl_ledger_writer_open(const char *path, struct sl_ledger_writer **out, struct sl_error *error) {
  struct sl_ledger_writer *writer = calloc(1, sizeof *writer);
  if (!writer)
    return sl_error_set(error, -ENOMEM, "out of memory");
  int r = sl_db_open(path, SL_DB_WRITE, &writer->db, error);
  if (r < 0)
    goto finish;
  /* The file is built beside the real one and renamed when it is whole, so it needs no journal of its own. */
  r = sl_db_execute(writer->db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=MEMORY;", error);
  if (r == 0)
    r = sl_db_execute(writer->db, sl_schema_sql, error);
  char version[64];
  snprintf(version, sizeof version, "PRAGMA user_version=%d", SL_LEDGER_VERSION);
  if (r == 0)
    r = sl_db_execute(writer->db, version, error);
  for (int i = 0; i < INSERT_count && r == 0; i++)
    r = sl_db_prepare(writer->db, insert_sql[i], &writer->inserts[i], error);
finish:
  if (r < 0)
    writer = sl_ledger_writer_close(writer);
  *out = writer;
  return r;
}

int sl_ledger_writer_listen(const struct sl_ledger_listener *listener, struct sl_ledger_writer **out,
                            struct sl_error *error) {
  struct sl_ledger_writer *writer = calloc(1, sizeof *writer);
  *out = writer;
  if (!writer)
    return sl_error_set(error, -ENOMEM, "out of memory");
  writer->listener = *listener;
  return 0;
}

struct sl_ledger_writer *sl_ledger_writer_close(struct sl_ledger_writer *writer) {
  if (!writer)
    return NULL;
  for (int i = 0; i < INSERT_count; i++)
    writer->inserts[i] = sl_statement_close(writer->inserts[i]);
  writer->db = sl_db_close(writer->db);
  free(writer);
  return NULL;
}

int sl_ledger_writer_begin(struct sl_ledger_writer *writer, uint32_t rank, struct sl_error *error) {
  writer->rank = rank;
  return sl_db_execute(writer->db, "BEGIN", error);
}

int sl_ledger_writer_commit(struct sl_ledger_writer *writer, struct sl_error *error) {
  return sl_db_execute(writer->db, "COMMIT", error);
}

int sl_ledger_writer_finish(struct sl_ledger_writer *writer, struct sl_error *error) {
  int r = sl_db_execute(writer->db,
                        "CREATE INDEX allocation_by_time ON allocation(rank, alloc_ns);"
                        "CREATE INDEX phase_by_time ON phase(rank, start_ns);"
                        "CREATE INDEX phase_by_module ON phase(rank, step, module_id);"
                        "CREATE INDEX module_by_name ON module(rank, fqn);"
                        "CREATE INDEX collective_by_number ON collective(comm, seq);"
                        "CREATE INDEX kernel_of_nccl ON kernel(rank) WHERE name GLOB '*nccl*Kernel*';"
                        "CREATE INDEX allocation_survivor ON allocation(rank, step) WHERE last_step > step;"
                        "CREATE INDEX peak_owner_by_step ON peak_owner(rank, step);"
                        "CREATE INDEX device_owner_by_time ON device_owner(rank, at_ns);",
                        error);
  return r < 0 ? r : sl_db_execute(writer->db, sl_views_sql, error);
}

struct sl_db *sl_ledger_writer_db(struct sl_ledger_writer *writer) {
  return writer->db;
}

uint32_t sl_ledger_writer_rank(const struct sl_ledger_writer *writer) {
  return writer->rank;
}

/* ---- ids that are unique over ranks ---- */

static int64_t id_of(const struct sl_ledger_writer *writer, uint64_t local) {
  return (int64_t)((uint64_t)writer->rank << 40 | local);
}

static void bind_id(struct sl_ledger_writer *writer, struct sl_statement *statement, int index, uint64_t local) {
  if (local)
    sl_bind_int(statement, index, id_of(writer, local));
  else
    sl_bind_null(statement, index);
}

/* NULL for values that mean "unknown". */
static void bind_known(struct sl_statement *statement, int index, int64_t value, int64_t unknown) {
  if (value == unknown)
    sl_bind_null(statement, index);
  else
    sl_bind_int(statement, index, value);
}

static void bind_sum(struct sl_statement *statement, int index, uint64_t bytes, bool known) {
  if (known)
    sl_bind_int(statement, index, (int64_t)bytes);
  else
    sl_bind_null(statement, index);
}

static void bind_word(struct sl_statement *statement, int index, const char *text) {
  if (text && *text)
    sl_bind_text(statement, index, text);
  else
    sl_bind_null(statement, index);
}

/* Three columns behind index: phase_id, module_id, step. */
static void bind_place(struct sl_ledger_writer *writer, struct sl_statement *statement, int index,
                       const struct sl_segment_place *place) {
  bind_id(writer, statement, index + 1, place->phase);
  bind_id(writer, statement, index + 2, place->module);
  bind_known(statement, index + 3, place->step, -1);
}

/* ---- rows ---- */

int sl_write_meta(struct sl_ledger_writer *writer, const char *key, const char *value, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_meta];
  sl_bind_text(s, 1, key);
  sl_bind_text(s, 2, value);
  return sl_statement_run(s, error);
}

int sl_write_rank(struct sl_ledger_writer *writer, const struct sl_rank_row *row, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_rank];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  bind_known(s, ++i, row->world_size, -1);
  bind_known(s, ++i, row->local_rank, -1);
  bind_word(s, ++i, row->host);
  bind_known(s, ++i, row->pid, -1);
  bind_known(s, ++i, row->device, -1);
  bind_word(s, ++i, row->device_name);
  bind_word(s, ++i, row->device_uuid);
  bind_known(s, ++i, (int64_t)row->device_bytes, 0);
  sl_bind_int(s, ++i, (int64_t)row->start_ns);
  sl_bind_int(s, ++i, (int64_t)row->end_ns);
  sl_bind_int(s, ++i, row->clean_exit);
  sl_bind_int(s, ++i, (int64_t)row->events);
  sl_bind_int(s, ++i, (int64_t)row->events_lost);
  bind_word(s, ++i, row->torch_version);
  bind_word(s, ++i, row->nccl_version);
  bind_word(s, ++i, row->cuda_version);
  bind_word(s, ++i, row->allocator_backend);
  bind_word(s, ++i, row->allocator_config);
  bind_word(s, ++i, row->fidelity);
  sl_bind_int(s, ++i, (int64_t)row->restored_allocations);
  return sl_statement_run(s, error);
}

int sl_write_gap(struct sl_ledger_writer *writer, uint64_t at_ns, const char *source, uint64_t lost, const char *reason,
                 struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_gap];
  sl_bind_int(s, 1, writer->rank);
  sl_bind_int(s, 2, (int64_t)at_ns);
  sl_bind_text(s, 3, source);
  sl_bind_int(s, 4, (int64_t)lost);
  sl_bind_text(s, 5, reason);
  return sl_statement_run(s, error);
}

int sl_write_module(struct sl_ledger_writer *writer, const struct sl_module_info *module, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_module];
  sl_bind_int(s, 1, id_of(writer, module->id));
  sl_bind_int(s, 2, writer->rank);
  sl_bind_text(s, 3, module->fqn);
  bind_word(s, 4, module->class_name);
  bind_id(writer, s, 5, module->parent);
  sl_bind_int(s, 6, id_of(writer, module->root));
  sl_bind_int(s, 7, module->depth);
  sl_bind_int(s, 8, (module->flags & SL_MODULE_FSDP) != 0);
  bind_word(s, 9,
            module->flags & SL_MODULE_RECOMPUTE ? "_checkpoint_wrapped_module"
            : module->flags & SL_MODULE_DDP     ? "module"
                                                : NULL);
  sl_bind_int(s, 10, (int64_t)module->parameter_bytes);
  sl_bind_int(s, 11, (int64_t)module->buffer_bytes);
  return sl_statement_run(s, error);
}

int sl_write_step(struct sl_ledger_writer *writer, const struct sl_step_row *row, struct sl_error *error) {
  if (writer->listener.step)
    writer->listener.step(writer->listener.context, row);
  struct sl_statement *s = writer->inserts[INSERT_step];
  const bool cache = row->recorded && !row->drivers_pool;
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, row->step);
  sl_bind_int(s, ++i, (int64_t)row->start_ns);
  sl_bind_int(s, ++i, (int64_t)row->end_ns);
  bind_known(s, ++i, row->recorded ? (int64_t)row->peak_ns : 0, 0);
  bind_id(writer, s, ++i, row->peak_phase);
  bind_id(writer, s, ++i, row->peak_module);
  bind_sum(s, ++i, row->peak.requested_bytes, cache);
  bind_sum(s, ++i, row->peak.allocated_bytes, row->recorded);
  bind_sum(s, ++i, row->peak.active_bytes, row->recorded);
  bind_sum(s, ++i, row->peak.reserved_bytes, cache);
  bind_known(s, ++i, (int64_t)row->peak_device_bytes, 0);
  bind_sum(s, ++i, row->before.allocated_bytes, row->recorded);
  bind_sum(s, ++i, row->before.reserved_bytes, cache);
  bind_sum(s, ++i, row->end.requested_bytes, cache);
  bind_sum(s, ++i, row->end.allocated_bytes, row->recorded);
  bind_sum(s, ++i, row->end.active_bytes, row->recorded);
  bind_sum(s, ++i, row->end.reserved_bytes, cache);
  bind_sum(s, ++i, row->end_free.largest_bytes, cache);
  bind_sum(s, ++i, row->end_free.inactive_split_bytes, cache);
  bind_known(s, ++i, row->checked, -1);
  return sl_statement_run(s, error);
}

int sl_write_phase(struct sl_ledger_writer *writer, const struct sl_phase *phase, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_phase];
  int i = 0;
  sl_bind_int(s, ++i, id_of(writer, phase->id));
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, phase->tid);
  sl_bind_text(s, ++i, sl_kind_name(phase->kind));
  sl_bind_text(s, ++i, phase->name);
  bind_id(writer, s, ++i, sl_phase_module(phase));
  bind_known(s, ++i, phase->step, -1);
  sl_bind_int(s, ++i, phase->call_index);
  sl_bind_int(s, ++i, (int64_t)phase->start_ns);
  bind_known(s, ++i, (int64_t)phase->end_ns, 0);
  bind_id(writer, s, ++i, phase->parent ? phase->parent->id : 0);
  return sl_statement_run(s, error);
}

int sl_write_allocation(struct sl_ledger_writer *writer, const struct sl_allocation *allocation, uint64_t stream,
                        const char *pool, const char *category, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_allocation];
  int i = 0;
  sl_bind_int(s, ++i, id_of(writer, allocation->id));
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, allocation->device);
  sl_bind_int(s, ++i, (int64_t)allocation->address);
  sl_bind_int(s, ++i, (int64_t)allocation->bytes);
  sl_bind_int(s, ++i, (int64_t)allocation->requested_bytes);
  sl_bind_int(s, ++i, (int64_t)stream);
  bind_word(s, ++i, pool);
  sl_bind_text(s, ++i, category);
  bind_word(s, ++i, sl_rules[allocation->rule].detail);
  bind_word(s, ++i, allocation->tag_name);
  bind_id(writer, s, ++i, allocation->module);
  bind_id(writer, s, ++i, allocation->phase_id);
  bind_known(s, ++i, allocation->step, -1);
  sl_bind_int(s, ++i, allocation->tid);
  sl_bind_int(s, ++i, (int64_t)allocation->alloc_ns);
  bind_known(s, ++i, (int64_t)allocation->free_ns, 0);
  bind_known(s, ++i, (int64_t)allocation->complete_ns, 0);
  bind_id(writer, s, ++i, allocation->free_phase_id);
  sl_bind_text(s, ++i, sl_rules[allocation->rule].name);
  bind_known(s, ++i, allocation->last_step, -1);
  return sl_statement_run(s, error);
}

int sl_write_segment(struct sl_ledger_writer *writer, uint32_t device, uint64_t address, uint64_t bytes,
                     const char *owner, const char *api, uint64_t stream, uint64_t alloc_ns, uint64_t free_ns,
                     const struct sl_segment_place *place, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_segment];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, device);
  sl_bind_int(s, ++i, (int64_t)address);
  sl_bind_int(s, ++i, (int64_t)bytes);
  sl_bind_text(s, ++i, owner);
  sl_bind_text(s, ++i, api);
  sl_bind_int(s, ++i, (int64_t)stream);
  sl_bind_int(s, ++i, (int64_t)alloc_ns);
  bind_known(s, ++i, (int64_t)free_ns, 0);
  bind_place(writer, s, i, place);
  return sl_statement_run(s, error);
}

int sl_write_gpu_code(struct sl_ledger_writer *writer, uint32_t device, uint64_t at_ns, bool loaded,
                      uint64_t image_bytes, const struct sl_segment_place *place, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_gpu_code];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, device);
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_int(s, ++i, loaded);
  sl_bind_int(s, ++i, (int64_t)image_bytes);
  bind_place(writer, s, i, place);
  return sl_statement_run(s, error);
}

int sl_write_context(struct sl_ledger_writer *writer, uint32_t device, uint32_t context, uint64_t at_ns, bool created,
                     struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_context];
  sl_bind_int(s, 1, writer->rank);
  sl_bind_int(s, 2, device);
  sl_bind_int(s, 3, context);
  sl_bind_int(s, 4, (int64_t)at_ns);
  sl_bind_int(s, 5, created);
  return sl_statement_run(s, error);
}

int sl_write_snapshot(struct sl_ledger_writer *writer, int64_t step, uint32_t module, uint32_t call_index,
                      enum sl_state state, uint64_t at_ns, const char *category, uint64_t bytes, uint64_t tracker_bytes,
                      struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_snapshot];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, step);
  sl_bind_int(s, ++i, id_of(writer, module));
  sl_bind_int(s, ++i, call_index);
  sl_bind_text(s, ++i, sl_state_name(state));
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_text(s, ++i, category);
  sl_bind_int(s, ++i, (int64_t)bytes);
  sl_bind_int(s, ++i, (int64_t)tracker_bytes);
  return sl_statement_run(s, error);
}

int sl_write_peak(struct sl_ledger_writer *writer, int64_t step, uint32_t module, const char *phase, uint64_t at_ns,
                  uint64_t allocated_bytes, const struct sl_own_bytes *own, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_peak];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, step);
  bind_id(writer, s, ++i, module);
  sl_bind_text(s, ++i, phase);
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_int(s, ++i, (int64_t)allocated_bytes);
  if (module) {
    sl_bind_int(s, ++i, (int64_t)own->alone);
    sl_bind_int(s, ++i, (int64_t)own->with_children);
  } else {
    sl_bind_null(s, ++i);
    sl_bind_null(s, ++i);
  }
  return sl_statement_run(s, error);
}

int sl_write_peak_category(struct sl_ledger_writer *writer, int64_t step, uint32_t module, const char *phase,
                           const char *category, uint64_t bytes, struct sl_error *error) {
  if (writer->listener.step_category && !module && strcmp(phase, sl_kind_name(SL_KIND_step)) == 0)
    writer->listener.step_category(writer->listener.context, category, bytes);
  struct sl_statement *s = writer->inserts[INSERT_peak_category];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, step);
  bind_id(writer, s, ++i, module);
  sl_bind_text(s, ++i, phase);
  sl_bind_text(s, ++i, category);
  sl_bind_int(s, ++i, (int64_t)bytes);
  return sl_statement_run(s, error);
}

int sl_write_peak_owner(struct sl_ledger_writer *writer, int64_t step, const char *category, const char *detail,
                        uint32_t module, const char *phase, uint64_t bytes, uint64_t allocations,
                        struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_peak_owner];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, step);
  sl_bind_text(s, ++i, category);
  bind_word(s, ++i, detail);
  bind_id(writer, s, ++i, module);
  bind_word(s, ++i, phase);
  sl_bind_int(s, ++i, (int64_t)bytes);
  sl_bind_int(s, ++i, (int64_t)allocations);
  return sl_statement_run(s, error);
}

int sl_write_device_sample(struct sl_ledger_writer *writer, uint32_t device, uint64_t at_ns, uint64_t total_bytes,
                           uint64_t used_bytes, int64_t own_bytes, int64_t other_bytes, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_device_sample];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, device);
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_int(s, ++i, (int64_t)total_bytes);
  sl_bind_int(s, ++i, (int64_t)used_bytes);
  bind_known(s, ++i, own_bytes, -1);
  bind_known(s, ++i, other_bytes, -1);
  return sl_statement_run(s, error);
}

int sl_write_device_owner(struct sl_ledger_writer *writer, uint32_t device, uint64_t at_ns, const char *owner,
                          int64_t bytes, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_device_owner];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, device);
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_text(s, ++i, owner);
  sl_bind_int(s, ++i, bytes);
  return sl_statement_run(s, error);
}

int sl_write_oom(struct sl_ledger_writer *writer, uint64_t at_ns, uint32_t device, const char *source,
                 const struct sl_oom_row *row, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_oom];
  const bool cache = row->recorded && !row->drivers_pool;
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_int(s, ++i, (int64_t)row->requested_bytes);
  bind_known(s, ++i, row->free_bytes, -1);
  bind_sum(s, ++i, row->totals.allocated_bytes, row->recorded);
  bind_sum(s, ++i, row->totals.reserved_bytes, cache);
  bind_sum(s, ++i, row->free_blocks.largest_bytes, cache);
  sl_bind_int(s, ++i, device);
  sl_bind_text(s, ++i, source);
  bind_sum(s, ++i, row->totals.active_bytes, row->recorded);
  bind_sum(s, ++i, row->free_blocks.inactive_split_bytes, cache);
  bind_place(writer, s, i, &row->place);
  return sl_statement_run(s, error);
}

int sl_write_oom_owner(struct sl_ledger_writer *writer, uint64_t at_ns, const char *category, const char *detail,
                       uint32_t module, const char *phase, uint64_t bytes, uint64_t allocations,
                       struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_oom_owner];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, (int64_t)at_ns);
  sl_bind_text(s, ++i, category);
  bind_word(s, ++i, detail);
  bind_id(writer, s, ++i, module);
  bind_word(s, ++i, phase);
  sl_bind_int(s, ++i, (int64_t)bytes);
  sl_bind_int(s, ++i, (int64_t)allocations);
  return sl_statement_run(s, error);
}

int sl_write_collective(struct sl_ledger_writer *writer, const struct sl_collective_row *row, struct sl_error *error) {
  if (writer->listener.collective)
    writer->listener.collective(writer->listener.context, row);
  struct sl_statement *s = writer->inserts[INSERT_collective];
  int i = 0;
  sl_bind_int(s, ++i, id_of(writer, row->id));
  sl_bind_int(s, ++i, writer->rank);
  if (row->has_comm)
    sl_bind_int(s, ++i, (int64_t)row->comm);
  else
    sl_bind_null(s, ++i);
  bind_known(s, ++i, row->seq, -1);
  sl_bind_text(s, ++i, row->operation);
  if (row->has_bytes)
    sl_bind_int(s, ++i, (int64_t)row->bytes);
  else
    sl_bind_null(s, ++i);
  bind_word(s, ++i, row->reduction);
  bind_known(s, ++i, row->root, -1);
  bind_known(s, ++i, row->peer, -1);
  bind_id(writer, s, ++i, row->module);
  bind_known(s, ++i, row->step, -1);
  bind_id(writer, s, ++i, row->phase);
  sl_bind_int(s, ++i, row->tid);
  sl_bind_int(s, ++i, (int64_t)row->enqueue_ns);
  bind_known(s, ++i, (int64_t)row->start_ns, 0);
  bind_known(s, ++i, (int64_t)row->end_ns, 0);
  if (row->joined_by)
    sl_bind_int(s, ++i, row->stream);
  else
    sl_bind_null(s, ++i);
  bind_id(writer, s, ++i, row->send_allocation);
  bind_id(writer, s, ++i, row->receive_allocation);
  bind_word(s, ++i, row->datatype);
  bind_word(s, ++i, row->algorithm);
  bind_word(s, ++i, row->protocol);
  bind_known(s, ++i, row->channels, 0);
  bind_known(s, ++i, row->kernel_calls, 0);
  bind_word(s, ++i, row->joined_by);
  return sl_statement_run(s, error);
}

int sl_write_communicator(struct sl_ledger_writer *writer, uint64_t comm, int64_t ranks, int64_t rank, const char *name,
                          uint64_t device_bytes, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_communicator];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, (int64_t)comm);
  bind_known(s, ++i, ranks, -1);
  bind_known(s, ++i, rank, -1);
  bind_word(s, ++i, name);
  sl_bind_int(s, ++i, (int64_t)device_bytes);
  return sl_statement_run(s, error);
}

int sl_write_source(struct sl_ledger_writer *writer, const char *source, const char *state, const char *reason,
                    uint64_t at_ns, struct sl_error *error) {
  struct sl_statement *s = writer->inserts[INSERT_source];
  sl_bind_int(s, 1, writer->rank);
  sl_bind_text(s, 2, source);
  sl_bind_text(s, 3, state);
  sl_bind_text(s, 4, reason);
  sl_bind_int(s, 5, (int64_t)at_ns);
  return sl_statement_run(s, error);
}

int sl_write_kernel(struct sl_ledger_writer *writer, const void *payload, const char *name, struct sl_error *error) {
  const struct sl_event_kernel *kernel = payload;
  struct sl_statement *s = writer->inserts[INSERT_kernel];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, kernel->device);
  sl_bind_int(s, ++i, kernel->stream);
  sl_bind_text(s, ++i, name);
  sl_bind_int(s, ++i, kernel->correlation);
  sl_bind_int(s, ++i, (int64_t)kernel->start_ns);
  sl_bind_int(s, ++i, (int64_t)kernel->end_ns);
  return sl_statement_run(s, error);
}

int sl_write_memcpy(struct sl_ledger_writer *writer, const void *payload, struct sl_error *error) {
  const struct sl_event_memory_copy *copy = payload;
  struct sl_statement *s = writer->inserts[INSERT_memcpy];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, copy->device);
  sl_bind_int(s, ++i, copy->stream);
  sl_bind_int(s, ++i, copy->kind);
  sl_bind_int(s, ++i, (int64_t)copy->bytes);
  sl_bind_int(s, ++i, copy->correlation);
  sl_bind_int(s, ++i, (int64_t)copy->start_ns);
  sl_bind_int(s, ++i, (int64_t)copy->end_ns);
  return sl_statement_run(s, error);
}

int sl_write_memset(struct sl_ledger_writer *writer, const void *payload, struct sl_error *error) {
  const struct sl_event_memory_set *set = payload;
  struct sl_statement *s = writer->inserts[INSERT_memset];
  int i = 0;
  sl_bind_int(s, ++i, writer->rank);
  sl_bind_int(s, ++i, set->device);
  sl_bind_int(s, ++i, set->stream);
  sl_bind_int(s, ++i, (int64_t)set->bytes);
  sl_bind_int(s, ++i, set->correlation);
  sl_bind_int(s, ++i, (int64_t)set->start_ns);
  sl_bind_int(s, ++i, (int64_t)set->end_ns);
  return sl_statement_run(s, error);
}

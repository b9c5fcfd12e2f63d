/*
 * What the writer and the rows have between them: ledger_writer.c sends rows on their way, ledger_rows.c puts them
 * together, a function a table. Nobody else includes this.
 */
#ifndef SHARDLEDGER_LEDGER_CELLS_H
#define SHARDLEDGER_LEDGER_CELLS_H

#include "db.h"
#include "ledger_writer.h"
#include "rank_sums.h"
#include "rows.h"

#include <errno.h>

/* INSERT statements by table; the parameters are the columns in the schema's order. */
#define INSERTS(X)                                                                                                     \
  X(meta, "INSERT OR REPLACE INTO meta VALUES(?,?)")                                                                   \
  X(rank, "INSERT INTO rank VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                                        \
  X(gap, "INSERT INTO gap VALUES(?,?,?,?,?)")                                                                          \
  X(module, "INSERT INTO module VALUES(?,?,?,?,?,?,?,?,?,?,?)")                                                        \
  X(step, "INSERT INTO step VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                                      \
  X(renumbered_step, "INSERT INTO renumbered_step VALUES(?,?,?)")                                                      \
  X(phase, "INSERT INTO phase VALUES(?,?,?,?,?,?,?,?,?,?,?)")                                                          \
  X(allocation, "INSERT INTO allocation VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")                            \
  X(segment, "INSERT INTO segment VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)")                                                  \
  X(host_segment, "INSERT INTO host_segment VALUES(?,?,?,?,?,?,?,?,?,?,?)")                                            \
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
  X(collective, "INSERT INTO collective VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,NULL,?)")             \
  X(collective_total, "INSERT INTO collective_total VALUES(?,?,?,?,?,?,?,?,?,?,?,?)")                                  \
  X(rank_steps, "INSERT INTO rank_steps VALUES(?,?,?,?,?,?,?)")                                                        \
  X(rank_collectives, "INSERT INTO rank_collectives VALUES(?,?,?,?,?,?,?)")                                            \
  X(communicator, "INSERT INTO communicator VALUES(?,?,?,?,?,?,?,?)")                                                  \
  X(source, "INSERT INTO source VALUES(?,?,?,?,?)")

enum insert {
#define X(table, sql) INSERT_##table,
  INSERTS(X)
#undef X
      INSERT_count,
};

/* The rows of what was summed up of the rank (ledger_rows.c). */
int sl_write_rank_sums(struct sl_ledger_writer *writer, struct sl_error *error);

struct sl_ledger_writer {
  struct sl_db *db; /* NULL: there is a listener only */
  struct sl_statement *inserts[INSERT_count];
  struct sl_ledger_listener listener;
  uint32_t rank;
  uint64_t ids[INSERT_count]; /* last one of this rank, of tables that number their rows themselves */
  struct sl_rank_sums sums;
  int64_t kernels_before;   /* kernel.rowid of the last row of other ranks */
  bool computes;            /* kernels other than NCCL's were written for this rank */
  struct sl_row row;        /* being put together */
  struct sl_rows *waiting;  /* where it goes; NULL: into its table */
  sl_collective_sink *sink; /* NULL: none */
  void *sink_context;
};

/* A row: its cells in the columns' order, then into the table or to where rows wait. */
static inline void row_begin(struct sl_ledger_writer *writer, enum insert table) {
  sl_row_begin(&writer->row, (uint8_t)table);
}

static inline void put_int(struct sl_ledger_writer *writer, int64_t value) {
  sl_row_put_number(&writer->row, value);
}

static inline void put_text(struct sl_ledger_writer *writer, const char *text) {
  sl_row_put_text(&writer->row, text);
}

static inline void put_null(struct sl_ledger_writer *writer) {
  sl_row_put_nothing(&writer->row);
}

/* Ids are unique over ranks. */
static inline int64_t id_of(const struct sl_ledger_writer *writer, uint64_t local) {
  return (int64_t)((uint64_t)writer->rank << 40 | local);
}

static inline void put_id(struct sl_ledger_writer *writer, uint64_t local) {
  if (local)
    put_int(writer, id_of(writer, local));
  else
    put_null(writer);
}

/* The id of a row that has no number of its own. */
static inline void put_next_id(struct sl_ledger_writer *writer) {
  put_int(writer, id_of(writer, ++writer->ids[writer->row.table]));
}

/* NULL for values that mean "unknown". */
static inline void put_known(struct sl_ledger_writer *writer, int64_t value, int64_t unknown) {
  if (value == unknown)
    put_null(writer);
  else
    put_int(writer, value);
}

static inline void put_sum(struct sl_ledger_writer *writer, uint64_t bytes, bool known) {
  if (known)
    put_int(writer, (int64_t)bytes);
  else
    put_null(writer);
}

static inline void put_word(struct sl_ledger_writer *writer, const char *text) {
  if (text && *text)
    put_text(writer, text);
  else
    put_null(writer);
}

/* Three columns: phase_id, module_id, step. */
static inline void put_place(struct sl_ledger_writer *writer, const struct sl_segment_place *place) {
  put_id(writer, place->phase);
  put_id(writer, place->module);
  put_known(writer, place->step, -1);
}

static inline int row_end(struct sl_ledger_writer *writer, struct sl_error *error) {
  if (!writer->waiting)
    return sl_ledger_writer_put_row(writer, &writer->row, error);
  return sl_rows_add(writer->waiting, &writer->row) < 0 ? sl_no_memory(error) : 0;
}

#endif

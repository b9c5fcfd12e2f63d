/*
 * Writing a ledger: the file from its making to its last index, and rows on their way into it, at once or after
 * waiting. Each function returns 0 or a negative errno with the failing SQL in error.
 */
#ifndef SHARDLEDGER_LEDGER_WRITER_H
#define SHARDLEDGER_LEDGER_WRITER_H

#include "rows.h"
#include "storage/allocator/block_map.h"
#include "storage/attribution/allocation.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_db;
struct sl_ledger_writer;
struct sl_event_kernel;
struct sl_event_memory_copy;
struct sl_event_memory_set;
struct sl_peak_category_cells;

/* Creates the database at path (which must not exist) with the permanent tables. Close with sl_ledger_writer_close. */
int sl_ledger_writer_open(const char *path, struct sl_ledger_writer **out, struct sl_error *error);
struct sl_ledger_writer *
sl_ledger_writer_close(struct sl_ledger_writer *writer); /* returns NULL; drops what is not committed */

/*
 * A writer for one rank's rows on another thread, while a ledger is open. Its database has no name, lies in the
 * ledger's directory, and is gone with the writer, also when the process is killed.
 */
int sl_ledger_writer_open_aside(struct sl_ledger_writer **out, struct sl_error *error);

/* Puts all that was committed into the ledger, behind the rows that are there. Nobody may use the ledger meanwhile. */
int sl_ledger_writer_move(struct sl_ledger_writer *aside, struct sl_ledger_writer *ledger, struct sl_error *error);

/* Who wants to hear of rows. Each may be NULL; pointers in a row are valid during the call only, its names longer. */
struct sl_period_row;
struct sl_collective_row;
struct sl_ledger_listener {
  void *context;
  /* A category's share of the peak of the period whose row comes next. The name is the caller's for good. */
  void (*period_category)(void *context, const char *category, uint64_t bytes);
  void (*period)(void *context, const struct sl_period_row *row);
  void (*collective)(void *context, const struct sl_collective_row *row);
};

/* A writer without a database: the listener hears of rows, and they are written nowhere. Needs no begin, no commit. */
int sl_ledger_writer_listen(const struct sl_ledger_listener *listener, struct sl_ledger_writer **out,
                            struct sl_error *error);

int sl_ledger_writer_begin(struct sl_ledger_writer *writer, uint32_t rank, struct sl_error *error);
int sl_ledger_writer_commit(struct sl_ledger_writer *writer, struct sl_error *error);

/* Ranks to come may share rows with one another (shared_tables.h). Before the first begin. */
void sl_ledger_writer_compare(struct sl_ledger_writer *writer);

/*
 * After a rank's commit, by order of rank, the one or the other in the writer (it may be the ledger itself): which
 * rank's rows stand for it. Those that it need not have are gone then.
 */
int sl_ledger_writer_share(struct sl_ledger_writer *writer, struct sl_ledger_writer *ledger, struct sl_error *error);

/* Indexes and views, after the last rank; checks the file and leaves it readable by one file alone. */
int sl_ledger_writer_finish(struct sl_ledger_writer *writer, struct sl_error *error);

/* For what sums up rows that are written: the database, and the rank since the last begin. Owned by the writer. */
struct sl_db *sl_ledger_writer_db(struct sl_ledger_writer *writer);
uint32_t sl_ledger_writer_rank(const struct sl_ledger_writer *writer);

/* Whether kernels other than NCCL's were written for this rank. Its rows of `kernel` have a rowid above
 * *kernels_before. */
bool sl_ledger_writer_computes(const struct sl_ledger_writer *writer, int64_t *kernels_before);

/*
 * Those that go into the ledger for certain, and wait for company only: the writer puts them when there are many. The
 * last ones wait until they are put by sl_ledger_writer_put, as rows that may be left out do.
 */
struct sl_rows *sl_ledger_writer_rows(struct sl_ledger_writer *writer);

/* Writes rows that waited, and empties them. */
int sl_ledger_writer_put(struct sl_ledger_writer *writer, struct sl_rows *rows, struct sl_error *error);

/* The ids of a row of `phase` in the rank; parent 0 for none. */
void sl_phase_row_ids(const struct sl_row *row, uint64_t *id, uint64_t *parent);

enum sl_period_kind {
  SL_PERIOD_setup,   /* before the first step */
  SL_PERIOD_step,    /* a training step */
  SL_PERIOD_between, /* after a step, before the next one */
  SL_PERIOD_end,     /* after the last one */
  SL_PERIOD_whole,   /* all of it, of a rank without steps */
  SL_PERIOD_cut,     /* any of these whose end was dropped from the record */
};

/* The word in the ledger. */
const char *sl_period_word(enum sl_period_kind kind);

struct sl_period_row {
  uint64_t period; /* 0, 1, … without gaps */
  enum sl_period_kind kind;
  int64_t step;           /* its number; of other kinds that of the step before, -1: none */
  uint64_t recorded_step; /* of a step: its number as recorded */
  const char *name;       /* what ran in it the longest; NULL: nothing that has a name. Of the log, or static */
  int64_t same_as;        /* -1: its own rows are there */
  uint64_t start_ns, end_ns, peak_ns;
  uint64_t peak_phase, peak_device_bytes; /* 0: none */
  int peak_kind;                          /* enum sl_kind of that phase, where there is one */
  uint32_t peak_module;                   /* 0: none */
  struct sl_block_totals peak, end;
  struct sl_free_blocks end_free;
  uint64_t first_allocator_event; /* from 1 */
  int checked;                    /* 1, 0, or -1: not compared */
  bool recorded;                  /* allocations were; else the sums are unknown, and not 0 */
  bool
      drivers_pool; /* cudaMallocAsync: PyTorch counts no requested bytes, and nobody tells of reserved and free ones */
};

struct sl_collective_row {
  uint64_t id;                                                                               /* 1, 2, … in the rank */
  const char *operation, *reduction, *datatype, *algorithm, *protocol, *joined_by, *untimed; /* NULL: unknown */
  bool has_comm, has_bytes;
  uint64_t comm, bytes;
  int64_t seq, root, peer, step;                /* -1: none */
  uint64_t phase;                               /* 0: none */
  uint64_t send_allocation, receive_allocation; /* 0: unknown */
  uint64_t enqueue_ns, start_ns, end_ns;        /* 0: unknown */
  uint32_t module, tid;                         /* module 0: none */
  uint32_t stream, kernel_calls, channels;      /* stream counts with joined_by; kernel_calls, channels 0: unknown */
};

/* Who takes rows of collectives as they become known. 0 or a negative errno. */
typedef int sl_collective_sink(void *context, const struct sl_collective_row *row, struct sl_error *error);

/* Rows of what other parts know, `to` as in ledger_tables.h; the other tables' rows are put by their cells. */
int sl_write_module(struct sl_ledger_writer *writer, const struct sl_module_info *module, struct sl_error *error);
int sl_write_period(struct sl_ledger_writer *writer, const struct sl_period_row *row, struct sl_error *error);
int sl_write_phase(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_phase *phase,
                   struct sl_error *error);
/* category and pool are words; pool NULL: the shared pool. */
int sl_write_allocation(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_allocation *allocation,
                        uint64_t stream, const char *pool, const char *category, struct sl_error *error);
/* of_period: of the period as a whole; the listener hears of it, too. */
int sl_write_peak_category(struct sl_ledger_writer *writer, struct sl_rows *to,
                           const struct sl_peak_category_cells *cells, bool of_period, struct sl_error *error);

struct sl_segment_place { /* what its thread was doing; 0, 0 and -1: nothing known */
  uint64_t phase;
  uint32_t module;
  int64_t step;
};

struct sl_oom_row {
  uint64_t requested_bytes;
  int64_t free_bytes;            /* of the device; -1: unknown */
  bool recorded;                 /* PyTorch's allocations were: else the next two say nothing */
  bool drivers_pool;             /* as of a step */
  struct sl_block_totals totals; /* of PyTorch's allocator */
  struct sl_free_blocks free_blocks;
  struct sl_segment_place place;
  uint32_t site; /* where in the code it was asked for; 0: not known */
};
int sl_write_oom(struct sl_ledger_writer *writer, uint64_t at_ns, uint32_t device, const char *source,
                 const struct sl_oom_row *row, struct sl_error *error);

int sl_write_collective(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_collective_row *row,
                        struct sl_error *error);
struct sl_collective_total_row {
  int64_t step;
  bool before, has_comm;
  uint64_t comm;
  const char *operation;
  uint64_t calls, bytes, timed, duration_ns, min_duration_ns, max_duration_ns; /* the last three of the timed ones */
  int64_t delay_ns;
};
int sl_write_collective_total(struct sl_ledger_writer *writer, const struct sl_collective_total_row *row,
                              struct sl_error *error);

/* Device times. */
int sl_write_kernel(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_event_kernel *kernel,
                    const char *name, struct sl_error *error);
int sl_write_memcpy(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_event_memory_copy *copy,
                    struct sl_error *error);
int sl_write_memset(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_event_memory_set *set,
                    struct sl_error *error);

#endif

/*
 * Ledgers in the formats of other tools: an entry of the table in cmd_export.c, a function in export_<format>.c.
 * Exports read in the order in which they write, so that their memory does not grow with the run.
 */
#ifndef SHARDLEDGER_EXPORT_H
#define SHARDLEDGER_EXPORT_H

#include "storage/error.h"
#include "storage/part_file.h"
#include "storage/tables/db.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_export {
  struct sl_db *db;
  const char *output; /* a file, or a directory for formats that write several */
  const char *ranks;  /* those that are written, for rank_in in SQL */
  uint64_t rows, rows_done;
  const char *name, *python; /* of parquet: the run's name in the lake, and who writes it; NULL: not said */
};

/* Writes the ledger. 0, or a negative errno with the sentence in error; nothing half-written is left at the output. */
typedef int sl_export_format(struct sl_export *export, struct sl_error *error);

sl_export_format sl_export_nsys;
sl_export_format sl_export_kineto;
sl_export_format sl_export_perfetto;
sl_export_format sl_export_snapshot;
sl_export_format sl_export_folded;
sl_export_format sl_export_pprof;
sl_export_format sl_export_datasette;
sl_export_format sl_export_parquet; /* returns only when it failed */

/* Counts a row that was written and shows how far the export is. */
void sl_export_progress(struct sl_export *export);

/* A file that takes its place when it is whole. */
struct sl_export_file {
  struct sl_part_file part;
  FILE *stream;
};

/* Makes it, with a stream that compresses what is written or not. 0, or a negative errno with the sentence. */
int sl_export_begin(const char *path, bool compressed, struct sl_export_file *out, struct sl_error *error);

/* The same, uncompressed; what is there and no file (a pipe, a terminal) is written into instead of replaced. */
int sl_export_begin_any(const char *path, struct sl_export_file *out, struct sl_error *error);

/* Puts it in its place, or removes it where r says that it is not whole. Returns r or what failed now. */
int sl_export_end(struct sl_export_file *file, int r, struct sl_error *error);

/*
 * Which ranges of a thread nest, as push/pop ranges and slices have to: those that don't cross the one around them.
 * Ranges come by start, and the longer of two first.
 */
struct sl_nesting {
  int64_t ends[128];
  int depth;
};
bool sl_nesting_fits(struct sl_nesting *nesting, int64_t start_ns, int64_t end_ns);

/*
 * The ranks. zero is what to subtract from a rank's times to have them on one clock that starts with the run: the
 * earliest start, and how far the host's clock is from the first host's.
 */
enum sl_export_rank_column {
  SL_RANK_rank,
  SL_RANK_world_size,
  SL_RANK_host,
  SL_RANK_pid,
  SL_RANK_device,
  SL_RANK_device_name,
  SL_RANK_device_bytes,
  SL_RANK_start,
  SL_RANK_end,
  SL_RANK_zero,
  SL_RANK_offset, /* the part of zero that is the clocks' difference */
  SL_RANK_nccl_version,
};

/* Makes the output a directory and calls write for each rank, with export_ranks' row of it. */
typedef int sl_export_rank(struct sl_export *export, struct sl_statement *rank, struct sl_error *error);
int sl_export_each_rank(struct sl_export *export, sl_export_rank *write, struct sl_error *error);

/*
 * Kernels of a rank (:rank) by start, with the NCCL call that each was joined to: of a group the last one, which
 * launches.
 */
enum sl_export_kernel_column {
  SL_KERNEL_device,
  SL_KERNEL_stream,
  SL_KERNEL_name,
  SL_KERNEL_correlation,
  SL_KERNEL_start,
  SL_KERNEL_end,
  SL_KERNEL_collective, /* id; NULL: none */
  SL_KERNEL_operation,
  SL_KERNEL_bytes,
  SL_KERNEL_comm,
  SL_KERNEL_seq,
  SL_KERNEL_datatype,
  SL_KERNEL_nranks,
  SL_KERNEL_tid,
  SL_KERNEL_enqueue,
};

/*
 * What happened to a rank's memory (:rank), by time and kind: PyTorch's segments and the blocks in them.
 */
enum sl_export_memory_kind { SL_SEGMENT_TAKEN, SL_BLOCK_MADE, SL_BLOCK_FREED, SL_SEGMENT_GIVEN_BACK };
enum sl_export_memory_column {
  SL_MEMORY_at,
  SL_MEMORY_kind,
  SL_MEMORY_device,
  SL_MEMORY_address,
  SL_MEMORY_bytes,
  SL_MEMORY_tid, /* of the allocation; 0 for segments */
  SL_MEMORY_category,
  SL_MEMORY_stream,
  SL_MEMORY_requested,
  SL_MEMORY_module, /* id of the owner; NULL: none */
  SL_MEMORY_site,   /* id of where a block was made; NULL: not known, or it is freed here */
};

/*
 * The phases of a rank (:rank) in this order, those that never ended up to the rank's end. Columns as in enum;
 * sl_db_prepare takes it.
 */
enum sl_export_phase_column {
  SL_PHASE_id,
  SL_PHASE_tid,
  SL_PHASE_kind,
  SL_PHASE_name,
  SL_PHASE_start,
  SL_PHASE_end,
  SL_PHASE_module, /* as people write it; NULL: none */
  SL_PHASE_step,
  SL_PHASE_call_index,
};

/* What a rank's program marked (:rank), by thread and time; export_marks. */
enum sl_export_mark_column {
  SL_MARK_tid,
  SL_MARK_at,
  SL_MARK_name,
  SL_MARK_domain, /* "": NVTX's default one */
  SL_MARK_value,  /* NULL: none */
  SL_MARK_step,   /* NULL: outside of steps */
  SL_MARK_module, /* as people write it; NULL: none */
};

#endif

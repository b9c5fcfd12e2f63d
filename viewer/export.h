/*
 * Ledgers in the formats of other tools: an entry of the table in cmd_export.c, a function in export_<format>.c.
 * Exports read in the order in which they write, so that their memory does not grow with the run.
 */
#ifndef SHARDLEDGER_EXPORT_H
#define SHARDLEDGER_EXPORT_H

#include "storage/db.h"
#include "storage/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_export {
  struct sl_db *db;
  const char *output; /* a file, or a directory for formats that write several */
  uint64_t rows, rows_done;
};

/* Writes the ledger. 0, or a negative errno with the sentence in error; nothing half-written is left at the output. */
typedef int sl_export_format(struct sl_export *export, struct sl_error *error);

sl_export_format sl_export_nsys;

/* Counts rows that were written and shows how far the export is. */
void sl_export_progress(struct sl_export *export, uint64_t rows);

/* path with a suffix, for a file that takes its place when it is whole. The caller frees it; NULL: out of memory. */
char *sl_export_staged(const char *path);

/* Puts the staged file in its place, or removes it where r says that it is not whole. Returns r or what failed now. */
int sl_export_commit(const char *staged, const char *path, int r, struct sl_error *error);

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
 * The phases of a rank (:rank) in this order, those that never ended up to the rank's end. Columns as in enum;
 * sl_db_prepare takes it.
 */
extern const char *const sl_export_phases_sql;
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

#endif

/*
 * A memory snapshot of PyTorch's, read as a log: the same events that recording gives, as far as a snapshot tells of
 * them. So whoever reads logs reads snapshots.
 *
 *   file ─► pickle_reader ─► snapshot (rows) ─► snapshot_start (what was there before) ─► events
 *
 * Its one thread is nobody's: PyTorch does not say which thread allocated. Times are PyTorch's time_us, microseconds
 * since the epoch; each event is put at the middle of its own. A snapshot without a history has one moment, that of the
 * file's last change.
 */
#ifndef SHARDLEDGER_SNAPSHOT_LOG_H
#define SHARDLEDGER_SNAPSHOT_LOG_H

#include "storage/error.h"
#include "storage/log/log_reader.h"

#include <stdbool.h>
#include <stdint.h>

/* Is it a file that begins as a pickle does? Says nothing about the rest. */
bool sl_snapshot_is(const char *path);

/* Whether a file may be one, by how it begins: 0, or a negative errno with a sentence that says what it is instead. */
int sl_snapshot_check(const char *path, struct sl_error *error);

/*
 * Opens it as a log. -ENOENT: it is not there; -EBADMSG: it is no snapshot, or a damaged one, or asks to run code; the
 * error says which. On success *out is closed with sl_log_close.
 */
int sl_snapshot_log_open(const char *path, struct sl_log **out, struct sl_error *error);

/* A snapshot, or a process directory. As sl_log_open for errors. */
int sl_recording_open(const char *path, struct sl_log **out, struct sl_error *error);

/*
 * Where the ledger of a snapshot goes: beside it, with another end. Of several, of which this is the first, without the
 * rank: "run/snapshot_rank0.pickle" gives "run/snapshot.sqlite". Owned by the caller; NULL: no memory.
 */
char *sl_snapshot_place(const char *path);
char *sl_snapshots_place(const char *path);

/*
 * The rank that a file's name tells: the number behind the last "rank" in it ("rank3_memory.pickle",
 * "snapshot-rank_12.pickle"). -1: none.
 */
int64_t sl_snapshot_rank(const char *path);

#endif

/*
 * What a process's log says of the run that it belongs to: what launchers told it
 * (plugin/process/process_description.c), and what shows in the record itself.
 *
 *                                  the same for all ranks of one run         another one in the next run
 *   world_size                     yes                                       often not
 *   torchelastic_run_id            yes                                       only where the user or --standalone made
 * it so torchelastic_restart_count     on one host; hosts count for themselves   yes, on the host that failed
 *   slurm_job_id, pbs_job_id, …     yes                                       yes, a job array's too
 *   slurm_restart_count            yes                                       yes: requeued
 *   slurm_step_id                  yes, unless each host's torchrun has one  yes
 *   mpi_job_id                     yes                                       yes
 *   master_port                    yes                                       mostly
 *   host and parent process        of a host's launcher                      yes; torchrun's restarts have the same
 *   id of the world communicator   yes                                       yes
 *   rehearsal                      yes, and nothing else is asked            yes: ranks come one after the other
 */
#ifndef SHARDLEDGER_RUN_IDENTITY_H
#define SHARDLEDGER_RUN_IDENTITY_H

#include "storage/error.h"
#include "storage/log/log_reader.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_run_identity {
  char *family;    /* all that is the same for all ranks of one run, in one text; never NULL once it was read */
  char *name;      /* the identity in the user's words, "slurm 4711.0", or ""; as --run takes it */
  char *host;      /* "" where it is not known */
  char *ancestors; /* process ids, the parent's first: "4711 4700 12"; "" where they are not known */
  int64_t pid;     /* -1: not known, as the next two */
  int64_t parent_pid;
  int64_t restarts;
  bool is_told;         /* a launcher gave an id that no other run has at the same time */
  bool is_rehearsal;    /* its ranks ran one after the other */
  bool joins_launchers; /* by a rendezvous with a name: so a host may have several launchers for one run */
};

/* From an open log. Owned by the caller, who frees it with sl_run_identity_free. 0 or -ENOMEM. */
int sl_run_identity_read(const struct sl_log *log, int64_t world_size, struct sl_run_identity *out);
void sl_run_identity_free(struct sl_run_identity *identity);

/* Whether the user's word for a run is its name, or one of the ids that make it up. */
bool sl_run_identity_is(const struct sl_run_identity *identity, const char *word);

/*
 * What only the record itself tells, which takes more than opening the log: the id of the first communicator with all
 * ranks (0: none is seen among the first events), and when the process recorded last. 0 or a negative errno.
 */
int sl_run_world_communicator(const char *path, int64_t world_size, uint64_t *id, struct sl_error *error);
int sl_run_process_end(const char *path, uint64_t *end_ns, struct sl_error *error);

/* A process that goes on records every second: one whose last record is older has ended. */
#define SL_ALIVE_NS 2000000000u

/* Whether it trains: a step of the companion's is among its first events. 1, 0 or a negative errno. */
int sl_run_has_steps(const char *path, struct sl_error *error);

#endif

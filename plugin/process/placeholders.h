/* Placeholders in the name of a run directory, for launchers that give all processes the same variables. */
#ifndef SHARDLEDGER_PLACEHOLDERS_H
#define SHARDLEDGER_PLACEHOLDERS_H

#include <stddef.h>

/* Tell a process its rank: torchrun's, Slurm's, Open MPI's. The first one that is set counts. */
#define SL_RANK_VARIABLES "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"

/*
 * Copies text to out with %h as this host's name, %r as this process's rank, %j as its job's id (Slurm's, PBS's, LSF's
 * or torchrun's) and %% as a percent sign. In these values what is no letter, digit, '-', '_' or '.' becomes '_'; a
 * process that nobody has told its rank or job has "none". Anything else behind a '%' is left as it is. Returns 0, or
 * -ENAMETOOLONG.
 */
int sl_placeholders_fill(const char *text, char *out, size_t size);

/* This host's name, as %h has it. */
void sl_host_name(char *out, size_t size);

#endif

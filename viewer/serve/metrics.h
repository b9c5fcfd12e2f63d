/*
 * A run's figures as Prometheus reads them (text format 0.0.4). What there is says metrics.def; every series of a rank
 * has the labels rank, local_rank, node, gpu_uuid and slurm_job_id, those that are known.
 */
#ifndef SHARDLEDGER_METRICS_H
#define SHARDLEDGER_METRICS_H

#include "storage/live/live_run.h"

#include <stdio.h>

enum { SL_METRICS_SERIES = 30 }; /* of a rank, at most */

/* Writes what the run looked like when it was read last. 0 or -ENOMEM; the stream's own errors are the caller's. */
int sl_metrics_write(FILE *file, const struct sl_live_run *run);

#endif

/*
 * NCCL's calls and communicators: from its NVTX ranges, its profiler plugin, kernel launches and kernels to one
 * `collective` row a call and one `communicator` row a communicator.
 *
 * Each source may be absent. Without NVTX the profiler's calls stand alone, without the profiler datatype, algorithm
 * and buffers are unknown (but see sl_collective_host), without CUPTI the device's times.
 */
#ifndef SHARDLEDGER_COLLECTIVES_H
#define SHARDLEDGER_COLLECTIVES_H

#include "storage/log/log_reader.h"
#include "storage/phases/phases.h"
#include "storage/tables/ledger_writer.h"

struct sl_collectives;

/* What the owner does with rows, and knows about tensor-level memory: the latter return an allocation's id, or 0. */
struct sl_collective_host {
  void *context;
  sl_collective_sink *row; /* a call's; its step may long have ended when its device times come */
  /* The live allocation that holds this address. */
  uint64_t (*containing)(void *context, uint64_t address);
  /*
   * The one allocation made in this phase whose requested size is bytes times factor; factor 0: times any number from
   * 2. 0 when there is none, or more than one.
   */
  uint64_t (*sized)(void *context, const struct sl_phase *phase, uint64_t bytes, uint64_t factor);
};

/* log, writer and phases must outlive it; host is copied. NULL: no memory. */
struct sl_collectives *sl_collectives_new(const struct sl_log *log, struct sl_ledger_writer *writer,
                                          struct sl_phases *phases, const struct sl_collective_host *host);
struct sl_collectives *sl_collectives_free(struct sl_collectives *collectives); /* returns NULL */

/* As sl_joiner_limit. */
void sl_collectives_limit(struct sl_collectives *collectives, uint32_t waiting);

/* Takes any event; those that say nothing about NCCL are ignored. 0 or a negative errno. */
int sl_collectives_event(struct sl_collectives *collectives, const struct sl_event *event, struct sl_error *error);

/* The id of the latest call; ids count up from 1. */
uint64_t sl_collectives_last_id(const struct sl_collectives *collectives);

/* The log has ended: writes what is left. */
int sl_collectives_finish(struct sl_collectives *collectives, struct sl_error *error);

#endif

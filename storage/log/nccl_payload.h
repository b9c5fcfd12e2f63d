/*
 * What NCCL says in the extended payloads of its NVTX ranges.
 *
 * NCCL registers the layout of each payload; the log has those schemas, so nothing here knows an NCCL version. Only for
 * logs without schemas there is a table of the layouts of 2.19 and later, which tells them apart by their length.
 */
#ifndef SHARDLEDGER_NCCL_PAYLOAD_H
#define SHARDLEDGER_NCCL_PAYLOAD_H

#include "log_reader.h"
#include "plugin/format/events.h"

#include <stdbool.h>
#include <stdint.h>

/* One payload. Numbers that it does not hold are -1, the reduction NULL. */
struct sl_nccl_payload {
  bool has_communicator, has_bytes;
  uint64_t communicator;
  uint64_t bytes;        /* message size as NCCL counts it */
  const char *reduction; /* Sum, Avg, …; owned by the log */
  int64_t root, peer;
  int64_t ranks, rank; /* of a communicator that is made or destroyed */
};

/* Kind of kernels that run an operation (AllGather, Send …); -1 when it is none of NCCL's kernel operations. */
int sl_kernel_kind(const char *operation);
const char *sl_kernel_word(int kind); /* in the kernels' names; NULL: there is no such kind */

/* Whether a range of this name, without "nccl", makes a communicator. */
bool sl_nccl_makes_communicator(const char *operation);

struct sl_nccl_schemas;

/* log gives the names and must outlive it. NULL: no memory. */
struct sl_nccl_schemas *sl_nccl_schemas_new(const struct sl_log *log);
struct sl_nccl_schemas *sl_nccl_schemas_free(struct sl_nccl_schemas *schemas); /* returns NULL */

/* 0 or -ENOMEM. */
int sl_nccl_schemas_add(struct sl_nccl_schemas *schemas, const struct sl_event_nvtx_schema_entry *entry);

/* Reads length bytes of a payload, and never more. Fields that lie outside of them are left unknown. */
void sl_nccl_payload_read(const struct sl_nccl_schemas *schemas, uint32_t domain, uint64_t schema, const void *data,
                          uint32_t length, struct sl_nccl_payload *out);

#endif

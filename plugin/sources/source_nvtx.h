/*
 * Capture source nvtx: attaching to a library's copy of NVTX, and what source_nvtx.c and source_nvtx_payload.c share:
 * reading NVTX's arguments and recording ranges.
 *
 * NVTX's headers are used for their types alone. The plugin is the tool: a call of NVTX from inside it would wait for
 * itself to initialise.
 */
#ifndef SHARDLEDGER_SOURCE_NVTX_H
#define SHARDLEDGER_SOURCE_NVTX_H

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <stdint.h>

/*
 * Puts our handlers into the tables of the copy of NVTX that this function belongs to; the log is open. Slots that stay
 * empty become no-ops by themselves. Once for each copy, on any thread.
 */
void sl_source_nvtx_attach(NvtxGetExportTableFunc_t get_export_table);

/* One range or mark, read and copied out of the caller's arguments. */
struct sl_nvtx_range {
  uint32_t name; /* id of a name; 0 for none */
  uint16_t domain;
  uint16_t category;
  uint64_t value;
  const nvtxPayloadData_t *payload; /* extended payload, the caller's, valid during the call; NULL without one */
};

/*
 * Id of a domain's events: 0 for NULL, and for handles that are not ours. Handles are compared with a fixed table and
 * never followed, so a destroyed domain's handle is as good as before.
 */
uint16_t sl_nvtx_domain(nvtxDomainHandle_t handle);

/* Id of the domain of this name (id of a name), which is made where nobody has. */
uint16_t sl_nvtx_domain_named(uint32_t name);

/* The four things that happen. Push and pop return the level, from 0; a pop without a push returns -1. */
int sl_nvtx_push(const struct sl_nvtx_range *range);
int sl_nvtx_pop(uint16_t domain, const nvtxPayloadData_t *payload); /* payload NULL: none */
nvtxRangeId_t sl_nvtx_start(const struct sl_nvtx_range *range);
void sl_nvtx_end(nvtxRangeId_t id);
void sl_nvtx_mark(const struct sl_nvtx_range *range);

#endif

/*
 * The little of NVML that the plugin asks: which processes hold how much of a device. Looked up at run time; a machine
 * without it loses only this figure.
 */
#ifndef SHARDLEDGER_NVML_H
#define SHARDLEDGER_NVML_H

#include <stdint.h>

struct sl_nvml_memory {
  uint64_t own_bytes;   /* of this process */
  uint64_t other_bytes; /* of all others */
  uint32_t others;      /* how many they are */
};

/*
 * Asks NVML about the device with this UUID ("GPU-…"). Loads and initialises it at the first call, which takes
 * milliseconds. -ENOENT: no NVML here; -EIO: it refused; -ESRCH: it does not list this process, so that nobody can tell
 * which of the others is this one.
 */
int sl_nvml_process_memory(const char *uuid, struct sl_nvml_memory *out);

#endif

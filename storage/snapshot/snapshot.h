/*
 * A memory snapshot of PyTorch's, as its fields say it: what the allocator held when it was taken, and the history that
 * led there. Nothing is concluded here.
 *
 * What torch.cuda.memory._snapshot() gives, and _dump_snapshot writes (torch/cuda/memory.py,
 * torch/csrc/cuda/Module.cpp; C++ programs: torch/csrc/cuda/memory_snapshot.cpp), in PyTorch 2.4 and later. Older
 * versions lack some of it: of a field that is not there the value is 0.
 *
 *   {segments: [{address, total_size, stream, device, segment_pool_id, is_expandable,
 *                blocks: [{address, size, requested_size, state, frames}]}],
 *    device_traces: [of device 0: [{action, addr or device_free, size, stream, time_us, frames,
 *                                   compile_context (2.8 on), user_metadata (2.10 on)}], of device 1: …],
 *    allocator_settings: {PYTORCH_CUDA_ALLOC_CONF, …},
 *    external_annotations (2.5 on): [{name, stage: START or END, device, time_us}]}
 *
 * torch.cuda.memory_snapshot() gives the list of segments alone.
 */
#ifndef SHARDLEDGER_SNAPSHOT_H
#define SHARDLEDGER_SNAPSHOT_H

#include "plugin/format/events.h"
#include "storage/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_snapshot_block {
  uint64_t address, bytes, requested_bytes;
  uint32_t stack; /* 0: none, as below */
  uint8_t state;  /* enum sl_block_state */
};

struct sl_snapshot_segment {
  uint64_t address, bytes, stream, pool_owner, pool_id;
  uint64_t allocated_bytes, active_bytes; /* as PyTorch sums them up */
  size_t first_block, block_count;
  uint32_t device;
  bool is_expandable;
};

struct sl_snapshot_entry { /* of a history */
  uint64_t address;        /* of an `oom` the free bytes of the device */
  uint64_t bytes, stream, time_us;
  uint32_t stack;
  uint32_t note;  /* string: user_metadata; 0: none */
  uint16_t pool;  /* of pools; 0: the shared one, or not said */
  uint8_t action; /* enum sl_allocator_action */
};

struct sl_snapshot_annotation {
  uint64_t time_us;
  uint32_t name; /* string */
  bool starts;
};

struct sl_snapshot_frame {
  uint32_t caller;         /* 0: none; else less than its own number */
  uint32_t file, function; /* strings */
  uint32_t line;
};

struct sl_snapshot_text { /* in the file */
  const char *text;
  uint32_t length;
};

struct sl_snapshot {
  struct sl_snapshot_segment *segments; /* in the file's order */
  size_t segment_count;
  struct sl_snapshot_block *blocks; /* those of a segment in a row, in address order */
  size_t block_count;
  struct sl_snapshot_entry *entries; /* of all devices */
  size_t entry_count;
  uint32_t *traces[SL_DEVICES_MAX]; /* numbers of entries, in their order */
  size_t trace_counts[SL_DEVICES_MAX];
  struct sl_snapshot_annotation *annotations;
  size_t annotation_count;
  struct sl_snapshot_frame *frames; /* by number; [0] is not used. A stack is its innermost frame. */
  uint32_t frame_count;
  struct sl_snapshot_text *strings; /* by number; [0] is not used */
  uint32_t string_count;
  struct {
    uint64_t owner, id;
  } * pools; /* by number; [0] is the shared one */
  uint32_t pool_count;
  struct sl_snapshot_text settings; /* PYTORCH_CUDA_ALLOC_CONF; text NULL: not said */
  bool is_expandable;               /* expandable_segments is set there, or a segment is one */
  bool has_traces;                  /* a device's history has an entry */
};

/* Called now and then: what is before `at` is read, but for some texts. */
typedef void sl_snapshot_progress(void *context, size_t at);

/*
 * Reads it from length bytes at data, which have to outlive it; name is the file's in sentences; progress: may be NULL.
 * -EBADMSG: damaged, or something else than a snapshot; -ENOMEM. Free it with sl_snapshot_free, also after a failure.
 */
int sl_snapshot_read(const unsigned char *data, size_t length, const char *name, sl_snapshot_progress *progress,
                     void *context, struct sl_snapshot *out, struct sl_error *error);
void sl_snapshot_free(struct sl_snapshot *snapshot);

#endif

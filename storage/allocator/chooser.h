/*
 * PyTorch's caching allocator on one device, choosing blocks itself: what would a sequence of requests take, under any
 * settings? The block map beside it follows what PyTorch chose; fed with the same requests both must agree.
 *
 *   request ─► round ─► the smallest free block of its stream and pool that is large enough ─► split, or not
 *                 └ none: collect old segments ─► a new segment ─► give cached ones back, and again ─► refused
 *
 * A stream of a pool is a place. Requests up to 1 MiB and larger ones have free blocks of their own. Of two free blocks
 * of one size the one with the lower address is taken, so results may depend on where the driver puts segments: the
 * caller says where, and sl_chooser_open tells whether it has mattered yet.
 */
#ifndef SHARDLEDGER_CHOOSER_H
#define SHARDLEDGER_CHOOSER_H

#include "allocator_config.h"
#include "block_map.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_chooser;
struct sl_chosen_block;

/* Where segments come from: the driver. */
struct sl_segment_source {
  void *context;
  /* The address of a new segment, which overlaps none that is there. */
  uint64_t (*place)(void *context, uint64_t stream, uint32_t pool, uint64_t bytes, bool expandable);
  void (*gone)(void *context, uint64_t address); /* a segment was given back */
};

struct sl_chooser_options {
  struct sl_allocator_config config;
  struct sl_segment_source source;
  uint64_t limit_bytes;    /* of segments that the process may have (set_per_process_memory_fraction); 0: no limit. Only
                              with    one are old segments collected */
  uint64_t capacity_bytes; /* of segments that the driver has room for; 0: always enough */
  uint64_t
      device_bytes; /* total memory, for the address space of expandable segments; 0: unknown, and more than enough */
};

/* NULL: no memory. Free it with sl_chooser_free, which returns NULL. */
struct sl_chooser *sl_chooser_new(const struct sl_chooser_options *options);
struct sl_chooser *sl_chooser_free(struct sl_chooser *chooser);

/* From now on no more segments than so many bytes: a limit that a program draws while it runs. 0: none. */
void sl_chooser_limit(struct sl_chooser *chooser, uint64_t limit_bytes);

/* The number of a stream of a pool, for requests. pool 0 is the shared one. 0, or -ENOMEM. */
int sl_chooser_place(struct sl_chooser *chooser, uint64_t stream, uint32_t pool, uint32_t *out);

/*
 * Hands out a block for so many bytes. 0; 1: refused, with what was given back in vain; -ENOMEM. *out is where the
 * caller keeps the block, and stays there: it becomes NULL when the block is free again.
 */
int sl_chooser_request(struct sl_chooser *chooser, uint32_t place, uint64_t requested, struct sl_chosen_block **out);

/* The tensor died; other streams may still use the block. */
void sl_chooser_release(struct sl_chooser *chooser, struct sl_chosen_block *block);

/* No stream uses the block any more: it is free. NULL, of one that a retry has waited for, is fine. 0 or -ENOMEM. */
int sl_chooser_complete(struct sl_chooser *chooser, struct sl_chosen_block *block);

/* torch.cuda.empty_cache(): gives back each segment of a pool in which nothing is alive. 0 or -ENOMEM. */
int sl_chooser_empty(struct sl_chooser *chooser, uint32_t pool);

/* Gives back the segment at an address, if nothing in it is alive. 1: there is none such. */
int sl_chooser_give_back(struct sl_chooser *chooser, uint64_t address);

/* How many segments sl_chooser_empty would give back. Not of expandable ones. */
uint64_t sl_chooser_idle_segments(const struct sl_chooser *chooser, uint32_t pool);

/*
 * What was there before the first request: a segment, and then what is alive in it, by address. small: it serves
 * requests up to 1 MiB. 0, -ENOMEM, or -EINVAL where no such free memory is.
 */
int sl_chooser_restore_segment(struct sl_chooser *chooser, uint32_t place, uint64_t address, uint64_t bytes,
                               bool small);
int sl_chooser_restore_block(struct sl_chooser *chooser, uint64_t address, uint64_t bytes, uint64_t requested,
                             struct sl_chosen_block **out);

const struct sl_block_totals *sl_chooser_totals(const struct sl_chooser *chooser);
uint64_t sl_chosen_bytes(const struct sl_chosen_block *block);
uint64_t sl_chosen_address(const struct sl_chosen_block *block);

/*
 * All that decides what comes next but for what is handed out, as one number; without the ages of free blocks, which
 * decide when segments are collected.
 */
uint64_t sl_chooser_signature(const struct sl_chooser *chooser);

/* One number more in a signature. */
static inline uint64_t sl_signature_add(uint64_t signature, uint64_t number) {
  signature = (signature ^ number) * UINT64_C(0x9e3779b97f4a7c15);
  return signature ^ signature >> 32;
}

/*
 * What the addresses of segments may have decided so far: whether a choice was between equal free blocks of different
 * segments. Two that are all of their segments are as good as each other, and those of one segment have a known order.
 * Where it is false, every order of addresses comes to the same totals.
 */
struct sl_chooser_open {
  bool sizes;    /* of blocks that were handed out */
  bool segments; /* how many there are, and of what size */
};
struct sl_chooser_open sl_chooser_open(const struct sl_chooser *chooser);

/* How often all cached segments were given back to serve a request. */
uint64_t sl_chooser_retries(const struct sl_chooser *chooser);

#endif

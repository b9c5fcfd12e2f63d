/*
 * Decompressors that are used again by the next log: making one asks the processor what it can do, which on a virtual
 * machine takes longer than opening a log.
 */
#ifndef SHARDLEDGER_DECOMPRESSOR_H
#define SHARDLEDGER_DECOMPRESSOR_H

struct ZSTD_DCtx_s;

/* Any thread's. The caller gives it back. NULL: no memory. */
struct ZSTD_DCtx_s *sl_decompressor_take(void);

/* May be NULL; returns NULL. */
struct ZSTD_DCtx_s *sl_decompressor_give(struct ZSTD_DCtx_s *decompressor);

#endif

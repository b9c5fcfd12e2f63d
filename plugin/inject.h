/* How the library attaches to its process; see inject.c. */
#ifndef SHARDLEDGER_INJECT_H
#define SHARDLEDGER_INJECT_H

/*
 * For NVTX's entry point, which runs when a library makes its first NVTX call: where `shardledger run` could not leave
 * the attaching to CUDA (SHARDLEDGER_ATTACH=nvtx), this does it. May be called again. Calls no NVTX.
 */
void sl_inject_by_nvtx(void);

#endif

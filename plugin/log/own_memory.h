/*
 * Memory of this process alone: not malloc's, which a signal handler may have interrupted, and zero in a child, also in
 * one that was made without running fork's handlers (clone, _Fork, vfork's relatives). What is in it is never freed.
 */
#ifndef SHARDLEDGER_OWN_MEMORY_H
#define SHARDLEDGER_OWN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* This process is the one that all of it belongs to from now on. */
void sl_own_process_set(void);

/* Whether it still is: false in a child. Takes no lock, so it comes before any. */
bool sl_own_process(void);

/* Zeroed, aligned to a cache line, at most 32 KiB; NULL when memory is short. For one thread at a time. */
void *sl_own_memory(size_t bytes);

#endif

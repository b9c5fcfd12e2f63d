/* Where a process's log goes: $SHARDLEDGER_DIR/<host>-<pid>-<start>/, made for its owner alone. */
#ifndef SHARDLEDGER_LOG_DIRECTORY_H
#define SHARDLEDGER_LOG_DIRECTORY_H

#include <stddef.h>

/* Remembers what a relative directory is relative to, before the host changes its working directory. */
void sl_log_directory_resolve(const char *base);

/*
 * Fills in base's placeholders (placeholders.h), makes it where it is missing, and in it a new directory for this
 * process; its absolute path goes to out. -EPERM: everybody may write to base; other negative errnos come from the file
 * system.
 */
int sl_log_directory_make(const char *base, char *out, size_t size);

#endif

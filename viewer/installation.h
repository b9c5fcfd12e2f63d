/* Where the other parts of ShardLedger are, as seen from this binary. */
#ifndef SHARDLEDGER_INSTALLATION_H
#define SHARDLEDGER_INSTALLATION_H

#include <stddef.h>

#define SL_PLUGIN_NAME "libshardledger.so"

/*
 * Path of the plugin: ../lib/libshardledger.so from the binary's own directory, or where the installation put it.
 * Returns 0, or -ENOENT with the place where it should be in out.
 */
int sl_find_plugin(char *out, size_t size);

#endif

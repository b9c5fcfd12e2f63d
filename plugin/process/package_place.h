/* Where the Python package is that was installed with this library and this command: one copy serves both. */
#ifndef SHARDLEDGER_PACKAGE_PLACE_H
#define SHARDLEDGER_PACKAGE_PLACE_H

#include <stddef.h>

/*
 * Directory of the package `shardledger`, as seen from libshardledger.so: python/ beside the library, where CMake puts
 * it, or the site-packages where pip put this version's. Returns 0, or -ENOENT with "" in out.
 */
int sl_find_package(const char *library, char *out, size_t size);

#endif

/* Names of GPU kernels, which the driver gives as C++ compilers mangle them. */
#ifndef SHARDLEDGER_DEMANGLE_H
#define SHARDLEDGER_DEMANGLE_H

/* The name as C++ writes it, or a copy of it as it is when it is not mangled. The caller frees it; NULL: out of memory.
 */
char *sl_demangle(const char *name);

/* What is left of a written name without namespaces, template arguments and parameters. The caller frees it. */
char *sl_short_name(const char *written);

#endif

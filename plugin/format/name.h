/* What a name in the log may look like. The plugin makes names so, and readers do not trust that it did. */
#ifndef SHARDLEDGER_NAME_H
#define SHARDLEDGER_NAME_H

#include <stddef.h>

#define SL_NAME_MAX 1000u /* bytes kept of a name */

/*
 * Makes any bytes a name: control characters become '?', invalid UTF-8 becomes U+FFFD, at most SL_NAME_MAX bytes are
 * kept and no character is cut. out has room for SL_NAME_MAX bytes. Returns the length. A clean name stays as it is.
 */
size_t sl_name_clean(const char *text, size_t length, char *out);

/* Length to which text is clipped: at most SL_NAME_MAX, at the start of a character. */
size_t sl_name_clip(const char *text, size_t length);

#endif

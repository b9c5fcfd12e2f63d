/*
 * A file that is mapped to be read, while other programs may write it. Where one cuts it short meanwhile, what is gone
 * reads as zeros, and does not end this process with SIGBUS; that it changed is said on request.
 */
#ifndef SHARDLEDGER_MAPPED_FILE_H
#define SHARDLEDGER_MAPPED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_mapped_file {
  const unsigned char *data; /* pages come and go as there is room; NULL: it is empty, or not open */
  size_t length;
  uint64_t changed_ns; /* its last change */
  int fd;              /* -1: not open */
};

/* Takes fd, also where it fails. 0; -EBADMSG: it is no regular file; -EMFILE: 64 are open; another negative errno. */
int sl_mapped_file_open(int fd, struct sl_mapped_file *out);
void sl_mapped_file_close(struct sl_mapped_file *file); /* again, or of one that did not open, is fine */

/* Whether it was written to since it was opened: then what was read may be of no one state. */
bool sl_mapped_file_is_changed(const struct sl_mapped_file *file);

#endif

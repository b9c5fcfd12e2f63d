/* How the log begins, with the first event of the process, and what the helper thread does for it from then on. */
#ifndef SHARDLEDGER_LOG_OPENING_H
#define SHARDLEDGER_LOG_OPENING_H

/*
 * Opens the log unless it is open, or was: after half a second without its files, which may come later. The caller
 * holds signals back (undisturbed.h). tick is called on the helper thread, about once a second and once at the end;
 * at_exit when the process ends.
 */
void sl_log_open_once(void (*tick)(void), void (*at_exit)(void));

#endif

/*
 * The names of one process: text to id, with a lookup that takes no lock.
 *
 * Entries are never removed. Adding is for one thread at a time: the caller holds its own lock.
 */
#ifndef SHARDLEDGER_STRING_TABLE_H
#define SHARDLEDGER_STRING_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define SL_NAMES_MAX (1024u * 1024) /* beyond, a program makes them up endlessly */

/* Id of exactly this text, or 0 when it is not in the table. */
uint32_t sl_names_find(const char *text, size_t length);

/* The id that the next sl_names_add will give; 0 when the table is full. */
uint32_t sl_names_next(void);

/* Adds a text that is not in the table; it is copied. Returns its id, or 0 when memory is short or the table full. */
uint32_t sl_names_add(const char *text, size_t length);

#endif

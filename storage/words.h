/* Words of users against words that are known: for "did you mean". */
#ifndef SHARDLEDGER_WORDS_H
#define SHARDLEDGER_WORDS_H

#include <stddef.h>

/* How many edits turn one word into the other. Of b, the first 63 characters count. */
int sl_word_distance(const char *a, const char *b);

/* The word that is at most two edits away, and the nearest of those; NULL when there is none. */
const char *sl_word_nearest(const char *word, const char *const *known, size_t count);

#endif

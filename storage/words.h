/* Words of users against words that are known: for "did you mean". */
#ifndef SHARDLEDGER_WORDS_H
#define SHARDLEDGER_WORDS_H

#include <stddef.h>

/* How many edits a slip of the finger may take: half of a short word is another word. */
int sl_word_slip(const char *word);

/* How many edits turn one word into the other. Of b, the first 63 characters count. */
int sl_word_distance(const char *a, const char *b);

/* The word that is a slip away, and the nearest of those; NULL when there is none. */
const char *sl_word_nearest(const char *word, const char *const *known, size_t count);

#endif

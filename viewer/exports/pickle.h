/*
 * Python's pickle format, protocol 2, as much of it as an export writes: dictionaries, lists, text, whole numbers.
 * Containers are opened and closed around what they hold, so that nothing has to be in memory. Errors stay in the file:
 * ask ferror.
 *
 *   {"size": 300}:  0x80 0x02  }  (  X 4 0 0 0 s i z e  q 0  J 0x2c 0x01 0 0  u  .
 *   a key's second use:  h 0
 */
#ifndef SHARDLEDGER_PICKLE_H
#define SHARDLEDGER_PICKLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_pickle {
  FILE *file;
  const char *keys[64]; /* written before, by their number in the reader's memory; constants of the caller */
  int key_count;
};

void sl_pickle_begin(struct sl_pickle *pickle, FILE *file);
void sl_pickle_end(struct sl_pickle *pickle);

void sl_pickle_open_dict(struct sl_pickle *pickle);
void sl_pickle_close_dict(struct sl_pickle *pickle);
void sl_pickle_open_list(struct sl_pickle *pickle);
void sl_pickle_close_list(struct sl_pickle *pickle);

/*
 * Between two items of a long list, with how many it has: hands over what was written, a thousand at a time as Python
 * does, because readers have it all on their stack.
 */
void sl_pickle_between(struct sl_pickle *pickle, int64_t items);

/* A text that comes often: at most 64 different ones, which have to outlive the pickle. */
void sl_pickle_key(struct sl_pickle *pickle, const char *key);
void sl_pickle_text(struct sl_pickle *pickle, const char *text);
void sl_pickle_integer(struct sl_pickle *pickle, int64_t value);
void sl_pickle_bool(struct sl_pickle *pickle, bool value);

/* (a, b) */
void sl_pickle_pair(struct sl_pickle *pickle, int64_t a, int64_t b);

#endif

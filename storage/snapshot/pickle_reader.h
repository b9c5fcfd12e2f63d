/*
 * Reads Python's pickle format, protocols 2 to 5, as much of it as plain data needs: dictionaries, lists, tuples, whole
 * and other numbers, texts, bytes, True, False, None, and what was written before. It executes nothing: an opcode that
 * would load or call code ends the reading with one sentence, as does whatever does not fit.
 *
 * A file of gigabytes is mostly small dictionaries. Whoever reads it gets each as soon as it is whole, and puts a value
 * of its own into its place, so that what is held is small. Texts stay in the file.
 *
 *     {"size": 300}  →  80 02  }  (  X 04 00 00 00 's' 'i' 'z' 'e'  M 2c 01  u  .
 *                              dict │ │                              └ two values above the mark: the dict is whole
 *                                   └ mark
 *
 * Nesting takes memory and no stack of ours. No size in the file is believed: what it claims is held against its
 * length, and memory is bounded by a multiple of that.
 */
#ifndef SHARDLEDGER_PICKLE_READER_H
#define SHARDLEDGER_PICKLE_READER_H

#include "storage/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_pickle_kind {
  SL_PICKLED_none,
  SL_PICKLED_bool,
  SL_PICKLED_integer, /* number: as int64_t; of a larger one the nearest */
  SL_PICKLED_float,   /* number: as double */
  SL_PICKLED_text,    /* number: where it begins in the file; text() has it */
  SL_PICKLED_bytes,
  SL_PICKLED_list, /* number: of the container */
  SL_PICKLED_dict,
  SL_PICKLED_tuple,
  SL_PICKLED_mark,
  SL_PICKLED_own, /* the caller's, from here on: SL_PICKLED_own + its own kind, number as it likes */
};

struct sl_pickled {
  uint64_t number : 56;
  uint64_t kind : 8; /* enum sl_pickle_kind */
};

struct sl_pickled_pair {
  struct sl_pickled key, value;
};

struct sl_unpickler;

/*
 * A dictionary is whole. Puts the caller's own value in *out and returns 1, or 0: it stays as it is; or a negative
 * errno, with the sentence in error. What it holds are values that were whole before.
 */
typedef int sl_unpickle_dict(void *context, struct sl_unpickler *reader, const struct sl_pickled_pair *items,
                             size_t count, struct sl_pickled *out, struct sl_error *error);

/*
 * Reads length bytes at data, which stay the caller's and outlive the reader; name is the file's in sentences. The root
 * is in *root. 0; -ENOMEM; -EBADMSG: damaged, or no such pickle; or what the caller's function returned.
 */
int sl_unpickle_read(const unsigned char *data, size_t length, const char *name, sl_unpickle_dict *dict, void *context,
                     struct sl_unpickler **out, struct sl_pickled *root, struct sl_error *error);
struct sl_unpickler *sl_unpickle_free(struct sl_unpickler *reader); /* NULL is fine; returns NULL */

/* Bytes read so far, by the caller's function. */
size_t sl_unpickle_at(const struct sl_unpickler *reader);

/* What a list or tuple holds; NULL and *count 0 for anything else. Valid until the next value is read. */
const struct sl_pickled *sl_unpickle_items(const struct sl_unpickler *reader, struct sl_pickled list, size_t *count);

/* The same of a dictionary that was left as it is. */
const struct sl_pickled_pair *sl_unpickle_pairs(const struct sl_unpickler *reader, struct sl_pickled dict,
                                                size_t *count);

/*
 * What a list holds is used up: from now on a number of the caller's stands for it, wherever the list is meant.
 * sl_unpickle_list_number: UINT64_MAX: none yet.
 */
void sl_unpickle_list_replace(struct sl_unpickler *reader, struct sl_pickled list, uint64_t number);
uint64_t sl_unpickle_list_number(const struct sl_unpickler *reader, struct sl_pickled list);

/* A text's bytes in the file, not terminated; NULL for anything else. */
const char *sl_unpickle_text(const struct sl_unpickler *reader, struct sl_pickled text, size_t *length);

/* A whole number, or 0. */
int64_t sl_unpickle_number(const struct sl_unpickler *reader, struct sl_pickled value);

#endif

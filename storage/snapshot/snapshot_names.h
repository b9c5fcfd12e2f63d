/* What comes again and again in a snapshot, once: texts, call stacks, and the words that it is read by. */
#ifndef SHARDLEDGER_SNAPSHOT_NAMES_H
#define SHARDLEDGER_SNAPSHOT_NAMES_H

#include "pickle_reader.h"
#include "snapshot.h"

enum sl_snapshot_word {
  SL_WORD_none, /* another one */
#define WORD(name, text) SL_WORD_##name,
#include "snapshot_words.def"
#undef WORD
  SL_WORD_count,
};

struct sl_name_entry;
struct sl_place_entry;
struct sl_frame_slot;
enum { SL_WORDS_CACHED = 256 };

/* Zero-initialise; free with sl_snapshot_names_free. Strings and frames go to the snapshot. */
struct sl_snapshot_names {
  struct sl_snapshot *snapshot;
  struct sl_name_entry *strings;
  struct sl_place_entry *places;
  struct sl_frame_slot *frames; /* a table of twice as many as there are, or more: most of the time goes here */
  size_t frame_slots;
  struct { /* file, function, line; by number, from 0 */
    uint32_t file, function, line;
  } * list;
  size_t place_count, place_capacity;
  struct { /* of a stack, from the outermost frame on: those of the stack before are mostly the same */
    uint32_t place, frame;
  } * path;
  size_t path_length, path_capacity;
  struct {
    uint64_t text;
    enum sl_snapshot_word word;
  } cache[SL_WORDS_CACHED];
};

void sl_snapshot_names_free(struct sl_snapshot_names *names);

/* Which word a text is. */
enum sl_snapshot_word sl_snapshot_word(struct sl_snapshot_names *names, const struct sl_unpickler *reader,
                                       struct sl_pickled text);

/* Numbers; 0: no memory. A text that is none, or empty, is no string: *out 0, and true. false: no memory. */
bool sl_snapshot_string(struct sl_snapshot_names *names, const struct sl_unpickler *reader, struct sl_pickled text,
                        uint32_t *out);
bool sl_snapshot_code_at(struct sl_snapshot_names *names, uint32_t file, uint32_t function, uint32_t line,
                         uint32_t *out);

/* The stack whose frames are at these places, the innermost first: its number, 0 for no frames. false: no memory. */
bool sl_snapshot_stack(struct sl_snapshot_names *names, const struct sl_pickled *places, size_t count, uint32_t *out);

#endif

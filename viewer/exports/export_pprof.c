/*
 * A profile for pprof (`go tool pprof`): what was allocated at the highest point of each rank's life, by call stack,
 * with rank, category, module and operator as labels. The format is profile.proto, gzipped; names as in pprof's heap
 * profiles.
 */
#include "exports/export.h"
#include "exports/protobuf.h"
#include "viewer_sql.h"

#include <stdlib.h>
#include <string.h>

/* Field numbers of the published profile.proto. */
enum { PROFILE_SAMPLE_TYPE = 1, PROFILE_SAMPLE = 2, PROFILE_LOCATION = 4, PROFILE_FUNCTION = 5, PROFILE_STRING = 6 };
enum { PROFILE_TIME = 9, PROFILE_DEFAULT_TYPE = 14 };
enum { TYPE_TYPE = 1, TYPE_UNIT = 2 };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE = 2, SAMPLE_LABEL = 3, LABEL_KEY = 1, LABEL_TEXT = 2, LABEL_NUMBER = 3 };
enum { LOCATION_ID = 1, LOCATION_LINE = 4, LINE_FUNCTION = 1, LINE_LINE = 2 };
enum { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_FILE = 4 };

/* The strings that every profile has, by their place in its table. */
enum { NO_STRING, OBJECTS, COUNT, SPACE, BYTES, RANK, CATEGORY, MODULE, OPERATOR, PASS, FIRST_STRING };
static const char *const strings[FIRST_STRING] = {"",     "inuse_objects", "count",  "inuse_space", "bytes",
                                                  "rank", "category",      "module", "operator",    "pass"};

struct writer {
  struct sl_export *export;
  FILE *file;
  uint64_t strings;
  struct sl_message profile, message, inner;
  bool failed;
};

/* Appends what the message `profile` holds to the file. */
static void flush(struct writer *w) {
  fwrite(w->profile.bytes, 1, w->profile.length, w->file);
  w->failed |= w->profile.failed || w->message.failed || w->inner.failed;
  sl_message_reset(&w->profile);
  sl_message_reset(&w->message);
}

/* Its place in the table; the same text may have several. */
static uint64_t string_add(struct writer *w, const char *text) {
  struct sl_message alone = {0};
  sl_message_text(&alone, PROFILE_STRING, text);
  fwrite(alone.bytes, 1, alone.length, w->file);
  w->failed |= alone.failed;
  sl_message_free(&alone);
  return w->strings++;
}

static void write_type(struct writer *w, uint64_t type, uint64_t unit) {
  sl_message_integer(&w->message, TYPE_TYPE, type);
  sl_message_integer(&w->message, TYPE_UNIT, unit);
  sl_message_message(&w->profile, PROFILE_SAMPLE_TYPE, &w->message);
  flush(w);
}

/* Each frame is a location and a function; ids of the ledger are theirs. */
static int write_frames(struct writer *w, struct sl_error *error) {
  struct sl_statement *s = NULL;
  int r = sl_db_ask(w->export->db, sl_sql_code_frames, SL_WITH(SL_WORD(":ranks", w->export->ranks)), &s, error);
  while (r >= 0 && (r = sl_statement_step(s, error)) > 0) {
    const uint64_t id = (uint64_t)sl_column_int(s, 0) + 1; /* 0 is none */
    const uint64_t name = string_add(w, sl_column_text(s, 1)), file = string_add(w, sl_column_text(s, 2));
    sl_message_integer(&w->message, FUNCTION_ID, id);
    sl_message_integer(&w->message, FUNCTION_NAME, name);
    sl_message_integer(&w->message, FUNCTION_FILE, file);
    sl_message_message(&w->profile, PROFILE_FUNCTION, &w->message);
    flush(w);
    sl_message_reset(&w->inner);
    sl_message_integer(&w->inner, LINE_FUNCTION, id);
    sl_message_integer(&w->inner, LINE_LINE, (uint64_t)sl_column_int(s, 3));
    sl_message_integer(&w->message, LOCATION_ID, id);
    sl_message_message(&w->message, LOCATION_LINE, &w->inner);
    sl_message_message(&w->profile, PROFILE_LOCATION, &w->message);
    flush(w);
  }
  s = sl_statement_close(s);
  return r;
}

static void label(struct writer *w, uint64_t key, const char *text, int64_t number) {
  if (text && !*text)
    return;
  const uint64_t place = text ? string_add(w, text) : 0;
  sl_message_reset(&w->inner);
  sl_message_integer(&w->inner, LABEL_KEY, key);
  sl_message_integer(&w->inner, text ? LABEL_TEXT : LABEL_NUMBER, text ? place : (uint64_t)number);
  sl_message_message(&w->message, SAMPLE_LABEL, &w->inner);
}

static int write_stack(struct writer *w, struct sl_statement *stack, int64_t frame, struct sl_error *error) {
  int r = 0;
  sl_statement_reset(stack);
  sl_bind_named_int(stack, ":frame", frame);
  while (r >= 0 && (r = sl_statement_step(stack, error)) > 0)
    sl_message_integer(&w->message, SAMPLE_LOCATION, (uint64_t)sl_column_int(stack, 0) + 1);
  return r;
}

static int write_samples(struct writer *w, struct sl_error *error) {
  enum { FRAME = 1, OPERATOR_NAME, STACK_OF, OF_CATEGORY, OF_MODULE, IN_BYTES, ALLOCATIONS };
  struct sl_statement *s = NULL, *stack = NULL;
  int r = sl_db_prepare(w->export->db, sl_sql_code_stack, &stack, error);
  if (r == 0)
    r = sl_db_ask(w->export->db, sl_sql_code_samples, SL_WITH(SL_WORD(":ranks", w->export->ranks)), &s, error);
  while (r >= 0 && (r = sl_statement_step(s, error)) > 0) {
    if (!sl_column_is_null(s, FRAME) && (r = write_stack(w, stack, sl_column_int(s, FRAME), error)) < 0)
      break;
    sl_message_integer(&w->message, SAMPLE_VALUE, (uint64_t)sl_column_int(s, ALLOCATIONS));
    sl_message_integer(&w->message, SAMPLE_VALUE, (uint64_t)sl_column_int(s, IN_BYTES));
    label(w, RANK, NULL, sl_column_int(s, 0));
    label(w, CATEGORY, sl_column_text(s, OF_CATEGORY), 0);
    label(w, MODULE, sl_column_text(s, OF_MODULE), 0);
    label(w, OPERATOR, sl_column_text(s, OPERATOR_NAME), 0);
    if (strcmp(sl_column_text(s, STACK_OF), "forward") == 0)
      label(w, PASS, "backward", 0);
    sl_message_message(&w->profile, PROFILE_SAMPLE, &w->message);
    flush(w);
  }
  s = sl_statement_close(s);
  stack = sl_statement_close(stack);
  return r;
}

static int write_profile(struct writer *w, struct sl_error *error) {
  int64_t peak_ns = 0;
  struct sl_statement *s = NULL;
  int r = sl_db_ask_first(w->export->db, sl_sql_code_peak_ns, SL_WITH(SL_WORD(":ranks", w->export->ranks)), &s, error);
  if (r > 0)
    peak_ns = sl_column_int(s, 0);
  s = sl_statement_close(s);
  for (int i = 0; i < FIRST_STRING; i++)
    string_add(w, strings[i]);
  write_type(w, OBJECTS, COUNT);
  write_type(w, SPACE, BYTES);
  sl_message_integer(&w->profile, PROFILE_DEFAULT_TYPE, SPACE);
  sl_message_integer(&w->profile, PROFILE_TIME, (uint64_t)peak_ns);
  flush(w);
  if (r >= 0)
    r = write_frames(w, error);
  return r < 0 ? r : write_samples(w, error);
}

int sl_export_pprof(struct sl_export *export, struct sl_error *error) {
  struct sl_export_file file;
  struct writer w = {.export = export};
  int r = sl_export_begin(export->output, true, &file, error);
  if (r < 0)
    return r;
  w.file = file.stream;
  r = write_profile(&w, error);
  if (r >= 0 && w.failed)
    r = sl_no_memory(error);
  sl_message_free(&w.profile);
  sl_message_free(&w.message);
  sl_message_free(&w.inner);
  return sl_export_end(&file, r < 0 ? r : 0, error);
}

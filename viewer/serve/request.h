/*
 * A JSON text that somebody sent, asked by path ("$.params.name"). SQLite's functions read it: so nothing is parsed by
 * hand, and nothing is needed beside what a ledger needs.
 */
#ifndef SHARDLEDGER_REQUEST_H
#define SHARDLEDGER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_json_kind {               /* of a value */
                    SL_JSON_none, /* there is none */
                    SL_JSON_null,
                    SL_JSON_bool,
                    SL_JSON_integer, /* that an int64_t holds */
                    SL_JSON_real,
                    SL_JSON_text,
                    SL_JSON_array,
                    SL_JSON_object,
};

struct sl_request;

struct sl_request *sl_request_new(void);                        /* NULL: no memory */
struct sl_request *sl_request_free(struct sl_request *request); /* returns NULL */

/* From here on the others speak of this text, which is copied. 0; -EINVAL: it is not JSON in UTF-8; or -ENOMEM. */
int sl_request_take(struct sl_request *request, const char *text, size_t bytes);

enum sl_json_kind sl_request_kind(struct sl_request *request, const char *path);

/* A value as SQLite has it: a text without its quotes, a number, 1 and 0. Free it. NULL: there is none, or no memory.
 */
char *sl_request_text(struct sl_request *request, const char *path);

/* The same as JSON, in one line. */
char *sl_request_json(struct sl_request *request, const char *path);

int64_t sl_request_integer(struct sl_request *request, const char *path); /* 0 where it is none */

/* Any other text of JSON in one line, as a copy to be freed. NULL: it is none, or no memory. */
char *sl_request_minify(struct sl_request *request, const char *json);

#endif

/* A question in SQL that somebody else wrote: one statement, which only reads the ledger that is open. */
#ifndef SHARDLEDGER_ONE_QUESTION_H
#define SHARDLEDGER_ONE_QUESTION_H

#include "storage/tables/db.h"

/*
 * Compiles it. From here on the connection compiles no statement that changes anything or reaches another file, until
 * sl_question_allow_all. 0 with *out, which the caller closes; -EPERM, -EINVAL … with the sentence in error.
 */
int sl_question_prepare(struct sl_db *db, const char *sql, struct sl_statement **out, struct sl_error *error);
void sl_question_allow_all(struct sl_db *db);

#endif

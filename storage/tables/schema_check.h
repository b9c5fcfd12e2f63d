/*
 * A ledger may come from anybody, and what it calls a table may be a view that never ends. Commands ask tables, and
 * this version's own views of them.
 */
#ifndef SHARDLEDGER_SCHEMA_CHECK_H
#define SHARDLEDGER_SCHEMA_CHECK_H

#include "db.h"

/*
 * Refuses a ledger in which one of this version's tables is something else (-EBADMSG). Where it has other views than
 * this version's, those of this version take their places on this connection.
 */
int sl_schema_check(struct sl_db *db, const char *path, struct sl_error *error);

/* Refuses (-EBADMSG) a ledger that has other views than this version's, for who attaches it to another database. */
int sl_schema_check_views(struct sl_db *db, struct sl_error *error);

#endif

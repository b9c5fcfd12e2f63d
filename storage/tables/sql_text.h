/* The SQL files beside this one, linked into the program. NUL-terminated. */
#ifndef SHARDLEDGER_SQL_TEXT_H
#define SHARDLEDGER_SQL_TEXT_H

extern const char sl_schema_sql[]; /* schema.sql */
extern const char sl_views_sql[];  /* views.sql */

#endif

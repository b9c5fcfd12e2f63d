/* The SQL files beside this one, linked into the program. NUL-terminated. */
#ifndef SHARDLEDGER_SQL_TEXT_H
#define SHARDLEDGER_SQL_TEXT_H

extern const char sl_indexes_sql[];  /* indexes.sql */
extern const char sl_meetings_sql[]; /* meetings.sql */
extern const char sl_views_sql[];    /* views.sql */

#endif

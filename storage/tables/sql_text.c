/* SL_SQL_DIRECTORY is this directory; the build reassembles when an SQL file changes. */
#include "sql_text.h"
#include "sql_embed.h"

SL_SQL_TEXT(sl_indexes_sql, SL_SQL_DIRECTORY "/indexes.sql");
SL_SQL_TEXT(sl_meetings_sql, SL_SQL_DIRECTORY "/meetings.sql");
SL_SQL_TEXT(sl_views_sql, SL_SQL_DIRECTORY "/views.sql");

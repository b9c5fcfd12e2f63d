/* SL_SQL_DIRECTORY is this directory; the build reassembles when an SQL file changes. */
#include "nsys_sql.h"
#include "storage/sql_embed.h"

SL_SQL_TEXT(sl_nsys_schema_sql, SL_SQL_DIRECTORY "/nsys_schema.sql");
SL_SQL_TEXT(sl_nsys_fill_sql, SL_SQL_DIRECTORY "/nsys_fill.sql");

/* SL_SQL_DIRECTORY is viewer/; the build reassembles when an SQL file changes. */
#include "exports/nsys_sql.h"
#include "storage/tables/sql_embed.h"

SL_SQL_TEXT(sl_nsys_schema_sql, SL_SQL_DIRECTORY "/exports/nsys_schema.sql");
SL_SQL_TEXT(sl_nsys_fill_sql, SL_SQL_DIRECTORY "/exports/nsys_fill.sql");

/* The SQL files of the Nsight Systems export, linked into the program. NUL-terminated. */
#ifndef SHARDLEDGER_NSYS_SQL_H
#define SHARDLEDGER_NSYS_SQL_H

extern const char sl_nsys_schema_sql[]; /* nsys_schema.sql */
extern const char sl_nsys_fill_sql[];   /* nsys_fill.sql */

#endif

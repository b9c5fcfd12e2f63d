/* SL_SQL_DIRECTORY is this directory; the build reassembles when an SQL file changes. */
#include "sql_text.h"

#define SQL_TEXT(symbol, file)                                                                                         \
  __asm__(".section .rodata\n"                                                                                         \
          ".global " #symbol "\n"                                                                                      \
          ".hidden " #symbol "\n"                                                                                      \
          ".type " #symbol ", %object\n" #symbol ":\n"                                                                 \
          ".incbin \"" SL_SQL_DIRECTORY "/" file "\"\n"                                                                \
          ".byte 0\n"                                                                                                  \
          ".previous\n")

SQL_TEXT(sl_schema_sql, "schema.sql");
SQL_TEXT(sl_views_sql, "views.sql");

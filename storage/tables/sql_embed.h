/* Links an SQL file into the program: SL_SQL_TEXT(symbol, "path"), declared elsewhere as extern const char symbol[]. */
#ifndef SHARDLEDGER_SQL_EMBED_H
#define SHARDLEDGER_SQL_EMBED_H

#define SL_SQL_TEXT(symbol, path)                                                                                      \
  __asm__(".section .rodata\n"                                                                                         \
          ".global " #symbol "\n"                                                                                      \
          ".hidden " #symbol "\n"                                                                                      \
          ".type " #symbol ", %object\n" #symbol ":\n"                                                                 \
          ".incbin \"" path "\"\n"                                                                                     \
          ".byte 0\n"                                                                                                  \
          ".previous\n")

#endif

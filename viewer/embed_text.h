/* Links a file into the program: SL_EMBED(symbol, "path"), declared elsewhere as extern const char symbol[]. */
#ifndef SHARDLEDGER_EMBED_TEXT_H
#define SHARDLEDGER_EMBED_TEXT_H

#define SL_EMBED(symbol, path)                                                                                         \
  __asm__(".section .rodata\n"                                                                                         \
          ".global " #symbol "\n"                                                                                      \
          ".hidden " #symbol "\n"                                                                                      \
          ".type " #symbol ", %object\n" #symbol ":\n"                                                                 \
          ".incbin \"" path "\"\n"                                                                                     \
          ".byte 0\n"                                                                                                  \
          ".previous\n")

#endif

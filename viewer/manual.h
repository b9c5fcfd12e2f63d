/* The manual page, made of the command table, the options of each command and the table of the environment. */
#ifndef SHARDLEDGER_MANUAL_H
#define SHARDLEDGER_MANUAL_H

#include <stdio.h>

/* roff with the macros of man(7), which man, mandoc and groff read. */
void sl_print_manual(FILE *file);

#endif

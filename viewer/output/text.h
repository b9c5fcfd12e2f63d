/* Names come from other people's programs: text is read character by character, and made safe before a terminal sees
 * it. */
#ifndef SHARDLEDGER_TEXT_H
#define SHARDLEDGER_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SL_REPLACEMENT 0xfffdu /* what stands for bytes that are not UTF-8 */

/* Reads the character at text (not at the end of it); returns how many bytes it takes. */
int sl_text_next(const char *text, uint32_t *out);

/*
 * A copy of text that cannot steer a terminal: such characters become \xNN or \uNNNN, bytes that are not UTF-8 become
 * U+FFFD. The caller frees it. NULL only when memory runs out.
 */
char *sl_clean_text(const char *text);

/* text as a JSON string, quotes included, whatever it holds. */
void sl_json_text(FILE *file, const char *text);

/* text as a cell of CSV. */
void sl_csv_text(FILE *file, const char *text);

/* Columns that clean text takes. */
int sl_text_width(const char *text);

#endif

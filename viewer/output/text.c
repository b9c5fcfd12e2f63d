/* Reads UTF-8 and makes other people's text safe for terminals and JSON. */
#include "output/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

int sl_text_next(const char *text, uint32_t *out) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *b = (const unsigned char *)text;
  int length = b[0] < 0x80 ? 1 : (b[0] & 0xe0) == 0xc0 ? 2 : (b[0] & 0xf0) == 0xe0 ? 3 : (b[0] & 0xf8) == 0xf0 ? 4 : 0;
  uint32_t c = length == 1 ? b[0] : length > 1 ? b[0] & (0x7fu >> length) : 0;

  for (int i = 1; i < length; i++) {
    if ((b[i] & 0xc0) != 0x80)
      length = 0;
    else
      c = c << 6 | (b[i] & 0x3f);
  }
  if (length == 0 || c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
    *out = SL_REPLACEMENT;
    return 1;
  }
  *out = c;
  return length;
}

/* Control characters, and the marks that reorder the text around them. */
static bool steers_terminals(uint32_t character) {
  return character < 0x20 || (character >= 0x7f && character < 0xa0) || character == 0x200e || character == 0x200f ||
         (character >= 0x2028 && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
}

char *sl_clean_text(const char *text) {
  /* Nothing grows to more than four times its size: \xNN for one byte, \uNNNN for three. */
  char *clean = malloc(strlen(text) * 4 + 1);
  char *end = clean;
  if (!clean)
    return NULL;

  while (*text) {
    uint32_t c = 0;
    int length = sl_text_next(text, &c);
    if (steers_terminals(c))
      end += sprintf(end, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
    else if (c == SL_REPLACEMENT)
      end = stpcpy(end, "\xef\xbf\xbd");
    else
      end = mempcpy(end, text, length);
    text += length;
  }
  *end = '\0';
  return clean;
}

int sl_text_width(const char *text) {
  int width = 0;
  while (*text) {
    uint32_t c = 0;
    text += sl_text_next(text, &c);
    int columns = c < 0x80 ? 1 : wcwidth((wchar_t)c);
    width += columns < 0 ? 1 : columns;
  }
  return width;
}

void sl_json_text(FILE *file, const char *text) {
  fputc('"', file);
  while (*text) {
    uint32_t c = 0;
    int length = sl_text_next(text, &c);
    if (c == '"' || c == '\\')
      fprintf(file, "\\%c", (int)c);
    else if (c == '\n')
      fputs("\\n", file);
    else if (c == '\t')
      fputs("\\t", file);
    else if (c == SL_REPLACEMENT || steers_terminals(c))
      fprintf(file, "\\u%04x", c);
    else
      fwrite(text, 1, length, file);
    text += length;
  }
  fputc('"', file);
}

static bool is_number(const char *text) {
  char *end = NULL;
  if (!strpbrk(text, "0123456789"))
    return false;
  (void)strtod(text, &end);
  return end != text && *end == '\0' && !isspace((unsigned char)*text);
}

/*
 * Spreadsheets run cells that look like formulas; a leading apostrophe makes them text. Line breaks and tabs stay, as
 * CSV allows them; whatever else could steer a terminal does not.
 */
void sl_csv_text(FILE *file, const char *text) {
  bool formula = *text && strchr("=+-@\t\r", *text) && !is_number(text);
  bool quoted = formula || strpbrk(text, ",\"\n\r") || *text == ' ';
  if (quoted)
    fputs(formula ? "\"'" : "\"", file);
  while (*text) {
    uint32_t c = 0;
    int length = sl_text_next(text, &c);
    if (c == '"')
      fputs("\"\"", file);
    else if (c == SL_REPLACEMENT)
      fputs("\xef\xbf\xbd", file);
    else if (steers_terminals(c) && c != '\n' && c != '\t')
      fprintf(file, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
    else
      fwrite(text, 1, length, file);
    text += length;
  }
  if (quoted)
    fputc('"', file);
}

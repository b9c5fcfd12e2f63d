/* What the other end of a stream can show, and what goes to stderr. */
#ifndef SHARDLEDGER_TERMINAL_H
#define SHARDLEDGER_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sl_terminal {
  bool moves;  /* a terminal that knows escape sequences: TERM is set, and not to dumb */
  bool colour; /* one that moves, and NO_COLOR is not set */
  bool utf8;   /* the locale's encoding is UTF-8 */
  int width;   /* columns; 0 when it is not a terminal */
};

void sl_terminal_detect(FILE *stream, struct sl_terminal *out);

enum sl_style {
  SL_STYLE_plain,
  SL_STYLE_bold,
  SL_STYLE_dim,
  SL_STYLE_red,
  SL_STYLE_green,
  SL_STYLE_yellow,
  SL_STYLE_blue,
  SL_STYLE_magenta,
  SL_STYLE_cyan,
};

/* The escape sequence that starts a style, or "" without colour. SL_STYLE_plain ends any style. */
const char *sl_style(const struct sl_terminal *terminal, enum sl_style style);

/* A bar of at most `width` columns for a share of 0 … 1; the caller frees it. NULL when memory runs out. */
char *sl_bar_text(const struct sl_terminal *terminal, double share, int width);

/* One sentence on stderr: "shardledger: …", with nothing in it that could steer a terminal. */
void sl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Where something was written, on a line of stdout, cleaned as everything. 0, or -ENOMEM after saying so. */
int sl_print_path(const char *path);

/* A progress bar on stderr when that is a terminal that moves, else nothing; fits sl_progress with a NULL context. */
void sl_progress_show(void *label, uint64_t done, uint64_t total);

/* The same for what is no bytes: "of 120000 rows". */
void sl_progress_show_count(const char *label, uint64_t done, uint64_t total);

/* Takes the bar off the screen again. */
void sl_progress_clear(void);

#endif

/* Finds out what a terminal can show; prints notes and progress to stderr. */
#include "output/terminal.h"
#include "output/text.h"
#include "output/units.h"

#include <errno.h>
#include <langinfo.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void sl_terminal_detect(FILE *stream, struct sl_terminal *out) {
  const char *no_color = getenv("NO_COLOR");
  const char *term = getenv("TERM");
  struct winsize size = {0};
  bool terminal = isatty(fileno(stream));

  out->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  out->moves = terminal && term && *term && strcmp(term, "dumb") != 0;
  out->colour = out->moves && !(no_color && *no_color);
  out->width = 0;
  if (terminal)
    out->width = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

const char *sl_style(const struct sl_terminal *terminal, enum sl_style style) {
  static const char *const codes[] = {
      [SL_STYLE_plain] = "\033[0m", [SL_STYLE_bold] = "\033[1m",     [SL_STYLE_dim] = "\033[2m",
      [SL_STYLE_red] = "\033[31m",  [SL_STYLE_green] = "\033[32m",   [SL_STYLE_yellow] = "\033[33m",
      [SL_STYLE_blue] = "\033[34m", [SL_STYLE_magenta] = "\033[35m", [SL_STYLE_cyan] = "\033[36m",
  };
  return terminal->colour ? codes[style] : "";
}

char *sl_bar_text(const struct sl_terminal *terminal, double share, int width) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  char *bar = malloc((size_t)width * 3 + 1);
  char *end = bar;
  if (!bar)
    return NULL;

  share = share < 0 ? 0 : share > 1 ? 1 : share;
  if (terminal->utf8) {
    int filled = (int)(share * width * 8 + 0.5);
    /* What is there at all stays visible. */
    filled = filled == 0 && share > 0 ? 1 : filled;
    for (int i = 0; i < filled / 8; i++)
      end = stpcpy(end, "█");
    end = stpcpy(end, eighths[filled % 8]);
  } else {
    int filled = (int)(share * width + 0.5);
    filled = filled == 0 && share > 0 ? 1 : filled;
    memset(end, '#', filled);
    end += filled;
  }
  *end = '\0';
  return bar;
}

void sl_complain(const char *format, ...) {
  char text[2048];
  va_list arguments;

  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);

  sl_progress_clear();
  char *clean = sl_clean_text(text);
  fprintf(stderr, "shardledger: %s\n", clean ? clean : "out of memory");
  free(clean);
}

int sl_print_path(const char *path) {
  char *clean = sl_clean_text(path);
  if (!clean) {
    sl_complain("out of memory");
    return -ENOMEM;
  }
  puts(clean);
  free(clean);
  return 0;
}

static bool progress_on_screen;

static void show_bar(const char *label, uint64_t done, uint64_t total, const char *whole) {
  struct sl_terminal terminal;
  sl_terminal_detect(stderr, &terminal);
  if (!terminal.moves)
    return;
  double share = done < total ? (double)done / (double)total : 1;
  char *bar = sl_bar_text(&terminal, share, 30);
  if (!bar)
    return;
  int padding = 30 - sl_text_width(bar);
  fprintf(stderr, "\r%s [%s%*s] %3.0f%% of %s ", label, bar, padding, "", share * 100, whole);
  fflush(stderr);
  progress_on_screen = true;
  free(bar);
}

void sl_progress_show(void *label, uint64_t done, uint64_t total) {
  char whole[SL_UNIT_CHARS];
  if (isatty(STDERR_FILENO) && total > 0)
    show_bar(label ? (const char *)label : "ingesting", done, total, sl_format_bytes(whole, (int64_t)total, false));
}

void sl_progress_show_count(const char *label, uint64_t done, uint64_t total) {
  char whole[SL_UNIT_CHARS];
  if (!isatty(STDERR_FILENO) || total == 0)
    return;
  snprintf(whole, sizeof(whole), "%llu rows", (unsigned long long)total);
  show_bar(label, done, total, whole);
}

void sl_progress_clear(void) {
  if (progress_on_screen)
    fputs("\r\033[K", stderr);
  progress_on_screen = false;
}

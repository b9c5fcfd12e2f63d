/* Reads a run's logs while they are written, and shows where the job is: on a terminal, as blocks of text, or once. */
#include "command.h"
#include "commands/watch_view.h"
#include "open_ledger.h"
#include "output/text.h"
#include "output/units.h"
#include "plugin/format/clock.h"
#include "serve/metrics_sink.h"
#include "storage/memory_file.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 20000 };              /* events of a rank between two looks at the clock */
#define READING_NS 500000000u        /* spent on reading before the picture is drawn again */
#define ENTER "\033[?1049h\033[?25l" /* the other screen, without a cursor */
#define LEAVE "\033[?25h\033[?1049l"

static volatile sig_atomic_t stopped;

static void on_stop(int signal) {
  (void)signal;
  stopped = 1;
}

static void on_resize(int signal) {
  (void)signal; /* it ends the wait, and what is drawn next has the new size */
}

/* Looks once and reads on for a while. 1: there is more; 0: all is read; or a negative errno. */
static int read_on(struct sl_live_run *run, struct sl_error *error) {
  const uint64_t begin = sl_clock_ns(CLOCK_MONOTONIC), now_ns = sl_clock_ns(CLOCK_REALTIME);
  int r = sl_live_run_look(run, now_ns, error);
  if (r < 0)
    return r;
  do
    r = sl_live_run_read(run, now_ns, PIECE, error);
  while (r > 0 && sl_clock_ns(CLOCK_MONOTONIC) - begin < READING_NS);
  return r;
}

/* ---- on a terminal ---- */

/* One line, cut where the terminal ends: escape sequences take no column. */
static void put_line(const char *line, size_t length, int width) {
  int column = 0;
  for (size_t i = 0; i < length;) {
    if (line[i] == '\033') {
      size_t end = i + strcspn(line + i, "m") + 1;
      fwrite(line + i, 1, end - i, stdout);
      i = end;
      continue;
    }
    uint32_t character;
    int bytes = sl_text_next(line + i, &character);
    if (column++ < width)
      fwrite(line + i, 1, (size_t)bytes, stdout);
    i += (size_t)bytes;
  }
}

/* From the first line on, each cleared to its end, and what is below. */
static void put_screen(const char *text, const struct winsize *size) {
  fputs("\033[H", stdout);
  int rows = size->ws_row > 0 ? size->ws_row : 24;
  for (int row = 0; *text && row < rows; row++) {
    size_t length = strcspn(text, "\n");
    fputs(row ? "\r\n" : "", stdout);
    put_line(text, length, size->ws_col > 0 ? size->ws_col : 80);
    fputs("\033[0m\033[K", stdout);
    text += length + (text[length] == '\n');
  }
  fputs("\033[J", stdout);
  fflush(stdout);
}

enum { BELOW_RANKS = 20 }; /* rows of what comes below the ranks, about */

static int print_text(FILE *file, const struct sl_live_run *run, const struct sl_watch_view *view,
                      const struct sl_output *like) {
  struct sl_output out = *like;
  out.file = file;
  return sl_watch_print(&out, run, view);
}

/* One line in which names of files can't steer a terminal. */
static void __attribute__((format(printf, 2, 3))) print_line(FILE *file, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  char *clean = sl_clean_text(text);
  fprintf(file, "%s\n", clean ? clean : "out of memory");
  free(clean);
}

/* One look as one line of JSON: outside of its texts, which have none, line ends are only there to be read by people.
 */
static int print_json_line(const struct sl_live_run *run, const struct sl_watch_view *view,
                           const struct sl_output *like) {
  size_t bytes = 0;
  struct sl_memory_file memory;
  struct sl_output out = *like;
  out.file = sl_memory_file_open(&memory);
  if (!out.file)
    return -ENOMEM;
  int r = sl_watch_print(&out, run, view);
  if (r == 0)
    r = sl_output_close(&out);
  char *text = sl_memory_file_close(&memory, &bytes);
  if (!text && r == 0)
    r = -ENOMEM;
  for (size_t i = 0; i < bytes && r == 0; i++)
    if (text[i] != '\n')
      putchar(text[i]);
  if (r == 0)
    putchar('\n');
  free(text);
  return r;
}

static void print_waiting(FILE *file, const char *directory, const struct sl_error *error) {
  if (error->text[0] && !strstr(error->text, "nothing was recorded"))
    print_line(file, "%s", error->text);
  print_line(file, "Waiting for a job that records into %s: shardledger run -o %s -- CMD", directory, directory);
}

static void draw(const struct sl_live_run *run, struct sl_watch_view *view, const struct sl_output *like,
                 const struct sl_metrics_sink *sink, int r, const struct sl_error *error) {
  char when[SL_UNIT_CHARS];
  struct winsize size = {0};
  struct sl_memory_file memory;
  FILE *file = sl_memory_file_open(&memory);
  if (!file)
    return;
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  view->limit = size.ws_row > BELOW_RANKS + 8 ? size.ws_row - BELOW_RANKS : 8;
  sl_format_instant(when, (int64_t)view->now_ns);
  fputs(sl_style(&like->terminal, SL_STYLE_bold), file);
  print_line(file, "%.8s UTC  %s%s%s", when + strlen("2026-11-27 "), sink->where,
             sl_metrics_sink_is_open(sink) ? "  " : "", run->directory);
  fputs(sl_style(&like->terminal, SL_STYLE_plain), file);
  if (r < 0 && run->count == 0)
    print_waiting(file, run->directory, error);
  else if (r < 0)
    print_line(file, "%s", error->text);
  if (run->count && print_text(file, run, view, like) == -ENOENT)
    print_line(file, "Rank %s is not there yet.", view->ranks);
  char *text = sl_memory_file_close(&memory, NULL);
  if (text)
    put_screen(text, &size);
  free(text);
}

/* Signals are blocked but here, so that none is missed between a look at its flag and the wait. */
static void wait_for(int64_t seconds, const struct sl_metrics_sink *sink, const sigset_t *while_waiting) {
  struct timespec time = {.tv_sec = (time_t)seconds};
  if (seconds && sl_metrics_sink_serves(sink))
    sl_metrics_sink_serve(sink, sl_clock_ns(CLOCK_MONOTONIC) + (uint64_t)seconds * 1000000000u, while_waiting);
  else
    ppoll(NULL, 0, &time, while_waiting);
}

static void signals_take(sigset_t *while_waiting) {
  static const struct {
    int number;
    void (*handler)(int);
  } ours[] = {{SIGINT, on_stop}, {SIGTERM, on_stop}, {SIGHUP, on_stop}, {SIGWINCH, on_resize}};
  sigset_t blocked;
  sigemptyset(&blocked);
  for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
    struct sigaction action = {.sa_handler = ours[i].handler};
    sigaction(ours[i].number, &action, NULL);
    sigaddset(&blocked, ours[i].number);
  }
  sigprocmask(SIG_BLOCK, &blocked, while_waiting);
}

/* Where there is no terminal. said: what was said last of what can't be read. */
static int print_block(const struct sl_live_run *run, const struct sl_watch_view *view, const struct sl_output *like,
                       int r, bool ended, const struct sl_error *error, struct sl_error *said) {
  const bool json = like->format == SL_FORMAT_json;
  if (run->count && r == 0 && json)
    return print_json_line(run, view, like);
  if (run->count && r == 0) {
    print_text(stdout, run, view, like);
    fputs(ended ? "" : "\n", stdout);
  } else if (r < 0 && strcmp(error->text, said->text) != 0) {
    print_waiting(json ? stderr : stdout, run->directory, error);
    *said = *error;
  }
  return 0;
}

/* 0, or a negative errno after saying it: the first time it ends the command, later it is said once. */
static int tell_metrics(struct sl_metrics_sink *sink, const struct sl_live_run *run, int read,
                        const struct sl_error *reading, bool first) {
  struct sl_error error = {{0}};
  int r = sl_metrics_sink_tell(sink, run, read, reading, &error);
  if (r < 0 && (first || !sink->complained))
    sl_complain("watch: %s", error.text);
  sink->complained = r < 0;
  return first ? r : 0;
}

static int follow(struct sl_live_run *run, struct sl_watch_view *view, int64_t interval, struct sl_metrics_sink *sink,
                  const struct sl_output *like) {
  const bool json = like->format == SL_FORMAT_json, screen = like->terminal.moves && !json;
  const bool metrics = sl_metrics_sink_is_open(sink);
  struct sl_error error = {{0}}, said = {{0}};
  sigset_t while_waiting;
  bool ended = false;
  int r = 0;
  signals_take(&while_waiting);
  setpriority(PRIO_PROCESS, 0, 19); /* the job comes first */
  if (metrics && !screen)
    print_line(json ? stderr : stdout, "Metrics: %s", sink->where);
  for (bool first = true; !stopped && !ended; first = false) {
    r = read_on(run, &error);
    view->now_ns = sl_clock_ns(CLOCK_REALTIME);
    ended = r == 0 && sl_watch_ended(run);
    if (tell_metrics(sink, run, r, &error, first) < 0)
      return SL_EXIT_USAGE;
    if (screen && first)
      fputs(ENTER, stdout);
    if (screen)
      draw(run, view, like, sink, r, &error);
    else if ((!metrics || json || r < 0) && print_block(run, view, like, r, ended, &error, &said) < 0)
      return SL_EXIT_USAGE;
    if (fflush(stdout) != 0 || ferror(stdout))
      return SL_EXIT_USAGE; /* nobody reads it any more */
    if (!ended)
      wait_for(r > 0 ? 0 : interval, sink, &while_waiting);
  }
  if (screen) {
    fputs(LEAVE, stdout);
    view->limit = 0;
    if (run->count)
      print_text(stdout, run, view, like);
  }
  if (ended && !json) {
    putchar('\n');
    print_line(stdout, "The job has ended; 'shardledger peaks %s' tells the rest.", run->directory);
  }
  return fflush(stdout) == 0 ? SL_EXIT_OK : SL_EXIT_USAGE;
}

static int once(struct sl_live_run *run, struct sl_watch_view *view, struct sl_metrics_sink *sink,
                struct sl_output *out) {
  struct sl_error error = {{0}};
  const uint64_t now_ns = sl_clock_ns(CLOCK_REALTIME);
  int r = sl_live_run_read_once(run, now_ns, out->format == SL_FORMAT_json ? SIZE_MAX : SL_WATCH_WHOLE, &error);
  const size_t detail = r < 0 ? 0 : sl_watch_detail(run, view);
  if (r == 0 && detail < run->count && out->format != SL_FORMAT_json && run->count > SL_WATCH_WHOLE)
    r = sl_live_run_detail(run, detail, now_ns, &error);
  view->now_ns = sl_clock_ns(CLOCK_REALTIME);
  if (r == -ENOENT && strstr(error.text, "no such directory"))
    sl_complain("%s: no such directory; record a run with 'shardledger run -o %s -- CMD'", run->directory,
                run->directory);
  else if (r < 0)
    sl_complain("%s", error.text);
  if (r < 0)
    return SL_EXIT_USAGE;
  if (sl_metrics_sink_is_open(sink)) /* instead of the picture */
    return tell_metrics(sink, run, r, &error, true) < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
  if (sl_watch_print(out, run, view) == -ENOENT) {
    sl_complain("watch: %s has no rank %s", run->directory, view->ranks);
    return SL_EXIT_USAGE;
  }
  return sl_output_close(out) < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}

int sl_cmd_watch(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  struct sl_watch_view view = {0};
  int64_t interval = 1;
  bool only_once = false;
  const char *metrics = NULL;
  const struct sl_argument arguments[] = {
      {"once", 0, NULL, "print what there is now, and end", SL_ARGUMENT_FLAG, &only_once},
      {"interval", 0, "S", "seconds between two looks (default: 1)", SL_ARGUMENT_NUMBER, &interval},
      {"rank", 0, "RANKS",
       "show the one of these in detail that has the highest peak, such as 7 or 0-3,7 (default: of all)",
       SL_ARGUMENT_RANKS, &view.ranks},
      {"metrics", 0, "FILE|ADDRESS",
       "figures for Prometheus: a file of its textfile collector, or an address to be scraped, such as :9401, which is "
       "this machine only; with --once a file, or - for stdout",
       SL_ARGUMENT_TEXT, &metrics},
      SL_OUTPUT_ARGUMENTS(format),
  };
  const char *directory = sl_default_directory();
  struct sl_output out;
  int r = sl_parse(command, arguments, sizeof arguments / sizeof arguments[0], argc, argv, &directory, 1);
  if (r < 0)
    return sl_parse_exit(r);
  if (format.csv && !only_once) {
    sl_complain("watch: --csv needs --once; --json prints a line each look");
    return SL_EXIT_USAGE;
  }
  if (interval < 1 || interval > 3600) {
    sl_complain("watch: --interval takes 1 to 3600 seconds");
    return SL_EXIT_USAGE;
  }
  if (sl_output_begin(&out, &format) < 0)
    return SL_EXIT_USAGE;
  struct sl_metrics_sink sink = SL_METRICS_SINK_NONE;
  struct sl_error error = {{0}};
  if (metrics && sl_metrics_sink_open(&sink, metrics, only_once, &error) < 0) {
    sl_complain("watch: --metrics: %s", error.text);
    return SL_EXIT_USAGE;
  }
  struct sl_live_run *run = sl_live_run_new(directory, format.run);
  if (!run) {
    sl_complain("out of memory");
    sink = sl_metrics_sink_close(sink);
    return SL_EXIT_USAGE;
  }
  r = only_once ? once(run, &view, &sink, &out) : follow(run, &view, interval, &sink, &out);
  sl_live_run_free(run);
  sink = sl_metrics_sink_close(sink);
  return r;
}

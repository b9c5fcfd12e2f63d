/* Commands answer in a process of their own: what they print, how long they take and how they end stays theirs. */
#include "output/text.h"
#include "plugin/format/clock.h"
#include "serve/mcp_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 120, WORDS = 32, ERROR_BYTES = 8192 };

struct heard { /* of one of its outputs */
  int fd;      /* -1: it has ended */
  char *text;  /* NUL-terminated */
  size_t bytes, limit;
  bool overflow;
};

static void hear(struct heard *heard) {
  char rest[4096];
  const bool full = heard->bytes == heard->limit;
  const ssize_t got = full ? read(heard->fd, rest, sizeof rest)
                           : read(heard->fd, heard->text + heard->bytes, heard->limit - heard->bytes);
  if (got > 0 && full)
    heard->overflow = true;
  else if (got > 0)
    heard->bytes += (size_t)got;
  if (got == 0 || (got < 0 && errno != EINTR)) {
    close(heard->fd);
    heard->fd = -1;
  }
  heard->text[heard->bytes] = 0;
}

/* Until both have ended. -ETIMEDOUT, or -EFBIG once the first has said more than there is room for. */
static int hear_all(struct heard heard[2]) {
  const int64_t until = sl_clock_ms() + SECONDS * 1000;
  while (heard[0].fd >= 0 || heard[1].fd >= 0) {
    struct pollfd polled[2] = {{.fd = heard[0].fd, .events = POLLIN}, {.fd = heard[1].fd, .events = POLLIN}};
    const int64_t left = until - sl_clock_ms();
    if (left <= 0)
      return -ETIMEDOUT;
    if (poll(polled, 2, (int)left) < 0)
      continue;
    for (int i = 0; i < 2; i++)
      if (polled[i].revents)
        hear(&heard[i]);
    if (heard[0].overflow)
      return -EFBIG;
  }
  return 0;
}

/* Starts it with its outputs in pipes. 0 or a negative errno. */
static int start(const char *const arguments[], pid_t *child, struct heard heard[2]) {
  char *argv[WORDS] = {(char *)"shardledger"};
  int pipes[2][2] = {{-1, -1}, {-1, -1}};
  posix_spawn_file_actions_t actions;
  for (int i = 0; arguments[i] && i + 2 < WORDS; i++)
    argv[i + 1] = (char *)arguments[i];
  int r = pipe2(pipes[0], O_CLOEXEC) < 0 || pipe2(pipes[1], O_CLOEXEC) < 0 ? -errno : 0;
  if (r == 0 && (r = -posix_spawn_file_actions_init(&actions)) == 0) {
    r = -posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int i = 0; i < 2 && r == 0; i++)
      r = -posix_spawn_file_actions_adddup2(&actions, pipes[i][1], i + 1);
    if (r == 0)
      r = -posix_spawn(child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  for (int i = 0; i < 2; i++) {
    if (pipes[i][1] >= 0)
      close(pipes[i][1]);
    if (r < 0 && pipes[i][0] >= 0)
      close(pipes[i][0]);
    heard[i].fd = r < 0 ? -1 : pipes[i][0];
  }
  return r;
}

/* The last line of what it complained, without the program's name: notes may come before. */
static int complaint(struct heard *errors, struct sl_error *error) {
  static const char name[] = "shardledger: ";
  while (errors->bytes && errors->text[errors->bytes - 1] == '\n')
    errors->text[--errors->bytes] = 0;
  const char *line = strrchr(errors->text, '\n');
  line = line ? line + 1 : errors->text;
  if (strncmp(line, name, strlen(name)) == 0)
    line += strlen(name);
  return sl_error_set(error, -EINVAL, "%.1000s", *line ? line : "the command ended without an answer");
}

int sl_mcp_ask_command(struct sl_request *request, const char *const arguments[], FILE *answer,
                       struct sl_error *error) {
  struct heard heard[2] = {{.fd = -1, .limit = SL_MCP_BYTES}, {.fd = -1, .limit = ERROR_BYTES}};
  char *json = NULL;
  pid_t child = -1;
  int status = 0, r = 0;
  for (int i = 0; i < 2; i++)
    if (!(heard[i].text = calloc(1, heard[i].limit + 1)))
      r = sl_no_memory(error);
  if (r == 0 && (r = start(arguments, &child, heard)) < 0)
    sl_error_set(error, r, "%s can't be started: %s", arguments[0], strerror(-r));
  if (r < 0)
    goto finish;
  r = hear_all(heard);
  if (r < 0)
    kill(child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  if (r == -ETIMEDOUT)
    sl_error_set(error, r, "%s was stopped after %d s", arguments[0], SECONDS);
  else if (r == -EFBIG)
    sl_error_set(error, r, "the answer has more than %d KiB; ask for less, such as one rank or one step",
                 SL_MCP_BYTES / 1024);
  else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    r = complaint(&heard[1], error);
  else if (!(json = sl_request_minify(request, heard[0].text)))
    r = sl_error_set(error, -EPROTO, "%s gave no JSON", arguments[0]);
  if (r < 0)
    goto finish;
  fprintf(answer, "{\"answer\":%s,\"notes\":", json);
  sl_json_text(answer, heard[1].text);
  fputc('}', answer);
finish:
  for (int i = 0; i < 2; i++) {
    if (heard[i].fd >= 0)
      close(heard[i].fd);
    free(heard[i].text);
  }
  free(json);
  return r;
}

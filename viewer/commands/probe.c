/* Asks a Python interpreter which packages it has. */
#include "commands/probe.h"

#include "plugin/format/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define DEADLINE_SECONDS 60 /* importing PyTorch from a network disk takes long */

/* torch's version file is read instead of importing torch, which takes seconds. */
static const char script[] =
    "import sys, os, shutil, shlex, glob, importlib.util\n"
    "def say(key, value): print(key + '=' + str(value).replace('\\n', ' '), flush=True)\n"
    "say('python', sys.version.split()[0])\n"
    "say('executable', sys.executable)\n"
    "cxx = shlex.split(os.environ.get('CXX', ''))\n"
    "say('compiler', next(filter(None, map(shutil.which, cxx[:1] + ['c++', 'g++', 'clang++'])), ''))\n"
    "spec = importlib.util.find_spec('torch')\n"
    "if spec and spec.origin:\n"
    "    home = os.path.dirname(spec.origin)\n"
    "    facts = {}\n"
    "    exec(open(os.path.join(home, 'version.py')).read(), facts)\n"
    "    say('torch', facts.get('__version__', '?'))\n"
    "    say('cuda', facts.get('cuda') or '')\n"
    "    header = os.path.join(home, 'include', 'ATen', 'record_function.h')\n"
    "    say('headers', header if os.path.exists(header) else '')\n"
    "    site = os.path.dirname(home)\n"
    "    found = sorted(glob.glob(os.path.join(site, 'nvidia', '*', 'lib', 'libcupti.so.1[23]')))\n"
    "    say('cupti', found[-1] if found else '')\n";

static int start(const char *interpreter, int output, pid_t *child) {
  char *const argv[] = {(char *)interpreter, "-c", (char *)script, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  int r = -posix_spawnp(child, interpreter, &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  return r;
}

void sl_probe_python(const char *interpreter, struct sl_probe *out) {
  int output[2] = {-1, -1};
  pid_t child = -1;
  size_t used = 0;
  int status = 0;
  int r = 0;

  memset(out, 0, sizeof(*out));
  r = pipe2(output, O_CLOEXEC) != 0 ? -errno : start(interpreter, output[1], &child);
  if (output[1] >= 0)
    close(output[1]);
  if (r < 0) {
    snprintf(out->error, sizeof(out->error), "%s can't be run: %s", interpreter, strerror(-r));
    goto finish;
  }
  for (int64_t end = sl_clock_ms() + DEADLINE_SECONDS * 1000;;) {
    struct pollfd stream = {.fd = output[0], .events = POLLIN};
    int64_t left = end - sl_clock_ms();
    if (left <= 0 || poll(&stream, 1, (int)left) == 0) {
      kill(child, SIGKILL);
      snprintf(out->error, sizeof(out->error), "%s did not answer within %d seconds", interpreter, DEADLINE_SECONDS);
      break;
    }
    ssize_t length = read(output[0], out->text + used, sizeof(out->text) - 2 - used);
    if (length < 0 && errno == EINTR)
      continue;
    if (length <= 0)
      break;
    used += (size_t)length;
  }
  waitpid(child, &status, 0);
  for (char *end = strchr(out->text, '\n'); end; end = strchr(end + 1, '\n'))
    *end = '\0'; /* lines become strings, and an empty one ends them */
  if (used == 0 && !out->error[0])
    snprintf(out->error, sizeof(out->error), "%s can't be run", interpreter);

finish:
  if (output[0] >= 0)
    close(output[0]);
}

const char *sl_probe_value(const struct sl_probe *probe, const char *key) {
  size_t length = strlen(key);
  for (const char *line = probe->text; *line; line += strlen(line) + 1)
    if (strncmp(line, key, length) == 0 && line[length] == '=')
      return line + length + 1;
  return "";
}

/* `shardledger doctor`: what this machine can record. */
#include "command.h"
#include "commands/probe.h"
#include "installation.h"
#include "open_ledger.h"
#include "output/text.h"
#include "output/units.h"
#include "plugin/process/package_place.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum state { STATE_ok, STATE_limited, STATE_missing };

struct finding {
  enum state state;
  char what[32];
  char found[512];
  char next[256]; /* what to do about it; "" when there is nothing to do */
};

struct findings {
  struct finding list[32];
  int count;
  bool driver, gpu, plugin, directory; /* without one of these nothing is recorded */
};

static void add(struct findings *findings, enum state state, const char *what, const char *next, const char *format,
                ...) __attribute__((format(printf, 5, 6)));
static void add(struct findings *findings, enum state state, const char *what, const char *next, const char *format,
                ...) {
  struct finding *finding = &findings->list[findings->count];
  va_list arguments;
  if (findings->count == sizeof(findings->list) / sizeof(findings->list[0]))
    return;
  findings->count++;
  finding->state = state;
  snprintf(finding->what, sizeof(finding->what), "%s", what);
  snprintf(finding->next, sizeof(finding->next), "%s", next);
  va_start(arguments, format);
  vsnprintf(finding->found, sizeof(finding->found), format, arguments);
  va_end(arguments);
}

static void check_plugin(struct findings *findings) {
  char path[PATH_MAX];
  findings->plugin = sl_find_plugin(path, sizeof(path)) == 0;
  if (findings->plugin)
    add(findings, STATE_ok, "plugin", "", "%s", path);
  else
    add(findings, STATE_missing, "plugin", "build or install ShardLedger as a whole", "%s is not there", path);
}

static void list_gpus(struct findings *findings, void *driver) {
  int (*get_count)(int *) = dlsym(driver, "cuDeviceGetCount");
  int (*get_name)(char *, int, int) = dlsym(driver, "cuDeviceGetName");
  int (*get_bytes)(size_t *, int) = dlsym(driver, "cuDeviceTotalMem_v2");
  int count = 0;
  if (!get_count || !get_name || !get_bytes || get_count(&count) != 0 || count == 0) {
    add(findings, STATE_missing, "GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES", "the driver sees no GPU");
    return;
  }
  findings->gpu = true;
  for (int i = 0; i < count && i < 8; i++) {
    char name[128] = "?";
    char memory[SL_UNIT_CHARS];
    size_t bytes = 0;
    get_name(name, sizeof(name), i);
    get_bytes(&bytes, i);
    add(findings, STATE_ok, "GPU", "", "%d of %d: %s, %s", i, count, name,
        sl_format_bytes(memory, (int64_t)bytes, false));
  }
}

static void check_driver(struct findings *findings) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) {
    add(findings, STATE_missing, "CUDA driver", "record on a machine with an NVIDIA GPU; ledgers can be read anywhere",
        "libcuda.so.1 can't be loaded");
    return;
  }
  int (*get_version)(int *) = dlsym(driver, "cuDriverGetVersion");
  int (*init)(unsigned) = dlsym(driver, "cuInit");
  int version = 0;
  if (get_version)
    get_version(&version);
  /* cuInit loads what this variable names, and the doctor is not to be recorded. */
  unsetenv("CUDA_INJECTION64_PATH");
  int result = init ? init(0) : -1;
  if (result != 0) {
    add(findings, STATE_missing, "CUDA driver", "check nvidia-smi; in a container, check that it was given the GPUs",
        "libcuda.so.1 is there (CUDA %d.%d), but cuInit failed with error %d", version / 1000, version % 1000 / 10,
        result);
    return;
  }
  findings->driver = true;
  if (version < 12000)
    add(findings, STATE_limited, "CUDA driver", "CUPTI needs a driver of CUDA 12.0 or later", "CUDA %d.%d",
        version / 1000, version % 1000 / 10);
  else
    add(findings, STATE_ok, "CUDA driver", "", "libcuda.so.1, CUDA %d.%d", version / 1000, version % 1000 / 10);
  list_gpus(findings, driver);
}

static bool open_cupti(const char *path, unsigned *version) {
  void *library = path && *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
  int (*get_version)(unsigned *) = library ? dlsym(library, "cuptiGetVersion") : NULL;
  return get_version && get_version(version) == 0;
}

/* The places where the plugin looks, PyTorch's own CUPTI first: in a job that is the one already loaded. */
static void check_cupti(struct findings *findings, const struct sl_probe *python) {
  static const char *const names[] = {"libcupti.so.13",
                                      "libcupti.so.12",
                                      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                                      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12",
                                      "/usr/local/cuda/lib64/libcupti.so.13",
                                      "/usr/local/cuda/lib64/libcupti.so.12"};
  const char *path = sl_probe_value(python, "cupti");
  unsigned version = 0;
  bool found = open_cupti(path, &version);
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++) {
    path = names[i];
    found = open_cupti(path, &version);
  }
  if (!found)
    add(findings, STATE_limited, "CUPTI", "install PyTorch's CUDA build, or set CUDA_HOME to a toolkit",
        "libcupti of CUDA 12 or 13 was not found: no driver-level memory, no device times");
  else
    add(findings, STATE_ok, "CUPTI", "", "%s, API version %u", path, version);
}

/* Whether a release brought the torch bridge for this PyTorch, as the companion's built_ahead.py looks for it. */
static bool is_built_ahead(const char *torch) {
  char plugin[PATH_MAX], package[PATH_MAX], path[PATH_MAX + 64];
  int major = 0, minor = 0, patch = 0, end = 0;
  if (sscanf(torch, "%d.%d.%d%n", &major, &minor, &patch, &end) != 3 ||
      (torch[end] && strncmp(torch + end, "+cu", 3) != 0))
    return false;
  if (sl_find_plugin(plugin, sizeof(plugin)) < 0 || sl_find_package(plugin, package, sizeof(package)) < 0)
    return false;
  /* Versions that were built with either ABI have a bridge for both. */
  snprintf(path, sizeof(path), "%s/native/built/bridge-%d.%d-abi1.so", package, major, minor);
  return sl_path_exists(path);
}

static void check_python(struct findings *findings, const struct sl_probe *python) {
  const char *version = sl_probe_value(python, "python");
  const char *torch = sl_probe_value(python, "torch");
  const char *cuda = sl_probe_value(python, "cuda");
  const char *compiler = sl_probe_value(python, "compiler");
  const char *headers = sl_probe_value(python, "headers");

  if (!*version) {
    add(findings, STATE_limited, "Python", "activate the environment of your training job, or name it with --python",
        "%s", python->error);
    return;
  }
  int major = 0, minor = 0;
  sscanf(version, "%d.%d", &major, &minor);
  if (major * 100 + minor < 309)
    add(findings, STATE_limited, "Python", "use Python 3.9 or later", "%s is too old for the companion package",
        version);
  else
    add(findings, STATE_ok, "Python", "", "%s, %s", version, sl_probe_value(python, "executable"));
  if (!*torch) {
    add(findings, STATE_limited, "PyTorch", "activate the environment of your training job, or name it with --python",
        "not in this environment: only native allocations and NVTX ranges would be recorded");
    return;
  }
  if (!*cuda)
    add(findings, STATE_limited, "PyTorch", "install a CUDA build of PyTorch", "%s, built without CUDA", torch);
  else
    add(findings, STATE_ok, "PyTorch", "", "%s, CUDA %s", torch, cuda);
  if (*cuda && is_built_ahead(torch))
    add(findings, STATE_ok, "torch bridge", "", "built ahead for this version of PyTorch; no compiler is needed");
  else if (!*compiler || !*headers)
    add(findings, STATE_limited, "torch bridge", "install g++ or clang++, or set CXX",
        "%s: allocations come from PyTorch's memory history, read at the end of steps",
        *compiler ? "PyTorch's headers are not there" : "no C++ compiler");
  else
    add(findings, STATE_ok, "torch bridge", "", "compiled at the first use by %s", compiler);
}

/* Whether logs can be written: in the directory, or where it would be made. */
static void check_directory(struct findings *findings, const char *directory) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s", directory);
  while (!sl_path_exists(path)) {
    char *slash = strrchr(path, '/');
    if (!slash)
      strcpy(path, ".");
    else if (slash == path)
      path[1] = '\0';
    else
      *slash = '\0';
  }
  struct stat status;
  bool is_directory = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  findings->directory = is_directory && access(path, W_OK | X_OK) == 0;
  if (findings->directory)
    add(findings, STATE_ok, "run directory", "", "%s can be written", directory);
  else
    add(findings, STATE_missing, "run directory", "name another one with -o or SHARDLEDGER_DIR", "%s: %s", directory,
        is_directory ? strerror(errno) : "not a directory");
}

/* Variables of the environment that keep sources from recording. */
static void check_environment(struct findings *findings) {
  static const struct {
    const char *name, *what, *loses, *next;
  } taken[] = {
      {"CUDA_INJECTION64_PATH", "injection", "another tool would be loaded in ShardLedger's place",
       "use 'shardledger run', which starts both, or unset it"},
      {"NVTX_INJECTION64_PATH", "NVTX",
       "another tool gets all libraries' ranges; ShardLedger records those of its companion beside it",
       "unset it to have the others' ranges too"},
      {"NCCL_PROFILER_PLUGIN", "NCCL profiler", "another tool gets NCCL's events; collectives come from NVTX only",
       "unset it"},
  };
  bool clean = true;
  for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
    const char *value = getenv(taken[i].name);
    if (!value || !*value || strstr(value, "shardledger"))
      continue;
    add(findings, STATE_limited, taken[i].what, taken[i].next, "%s=%s: %s", taken[i].name, value, taken[i].loses);
    clean = false;
  }
  const char *nccl = getenv("NCCL_NVTX_DISABLE");
  if (nccl && *nccl && strcmp(nccl, "0") != 0) {
    add(findings, STATE_limited, "NCCL ranges", "unset it", "NCCL_NVTX_DISABLE=%s: collectives have no ranges", nccl);
    clean = false;
  }
  const char *backend = getenv("PYTORCH_CUDA_ALLOC_CONF");
  if (backend && strstr(backend, "cudaMallocAsync")) {
    add(findings, STATE_limited, "allocator", "use PyTorch's native allocator",
        "backend:cudaMallocAsync: allocations are seen by CUPTI only");
    clean = false;
  }
  const char *uncached = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  if (uncached && *uncached && strcmp(uncached, "0") != 0) {
    add(findings, STATE_limited, "allocator", "unset it",
        "PYTORCH_NO_CUDA_MEMORY_CACHING: allocations are seen by CUPTI only");
    clean = false;
  }
  if (clean)
    add(findings, STATE_ok, "environment", "", "nothing in the way");
}

static void print_findings(struct sl_output *out, const struct findings *findings) {
  static const char *const words[] = {"ok", "limited", "missing"};
  static const enum sl_style styles[] = {SL_STYLE_green, SL_STYLE_yellow, SL_STYLE_red};
  static const struct sl_column columns[] = {
      {"state", "State", SL_UNIT_text, 0},
      {"what", "What", SL_UNIT_text, 0},
      {"found", "Found", SL_UNIT_text, 0},
      {"next", "Next step", SL_UNIT_text, SL_COLUMN_HIDE_EMPTY},
  };
  if (out->format == SL_FORMAT_text) { /* a line each, which reads better than columns of prose */
    for (int i = 0; i < findings->count; i++) {
      const struct finding *f = &findings->list[i];
      char *found = sl_clean_text(f->found);
      fprintf(out->file, "%s%-8s%s %-14s %s\n", sl_style(&out->terminal, styles[f->state]), words[f->state],
              sl_style(&out->terminal, SL_STYLE_plain), f->what, found ? found : "");
      free(found);
      if (f->next[0])
        sl_output_line(out, "%24s%s %s", "", out->terminal.utf8 ? "→" : "->", f->next);
    }
    return;
  }
  struct sl_table *table = sl_table_begin(out, "checks", columns, 4);
  for (int i = 0; i < findings->count; i++) {
    sl_cell_text(table, words[findings->list[i].state]);
    sl_cell_text(table, findings->list[i].what);
    sl_cell_text(table, findings->list[i].found);
    sl_cell_text(table, findings->list[i].next[0] ? findings->list[i].next : NULL);
  }
  table = sl_table_end(table);
}

int sl_cmd_doctor(const struct sl_command *command, int argc, char **argv) {
  struct sl_output_arguments format = {0};
  const char *directory = sl_default_directory();
  const char *interpreter = "python3";
  const struct sl_argument arguments[] = {
      {"output", 'o', "DIR", "the run directory that would be used", SL_ARGUMENT_TEXT, &directory},
      {"python", 0, "EXE", "the job's Python; default: python3", SL_ARGUMENT_TEXT, &interpreter},
      SL_FORMAT_ARGUMENTS(format),
  };
  struct findings findings = {.count = 0};
  struct sl_output out;
  int r = sl_parse(command, arguments, sizeof(arguments) / sizeof(arguments[0]), argc, argv, NULL, 0);
  if (r < 0)
    return sl_parse_exit(r);
  if (sl_output_begin(&out, &format) < 0)
    return SL_EXIT_USAGE;

  struct sl_probe python;
  sl_probe_python(interpreter, &python);
  check_environment(&findings); /* before check_driver, which has to clear a variable */
  check_plugin(&findings);
  check_driver(&findings);
  check_cupti(&findings, &python);
  check_python(&findings, &python);
  check_directory(&findings, directory);
  print_findings(&out, &findings);

  bool able = findings.driver && findings.gpu && findings.plugin && findings.directory;
  sl_output_line(&out, "%s", "");
  sl_output_styled(&out, able ? SL_STYLE_green : SL_STYLE_red, "%s",
                   able ? "This machine can record. Start with: shardledger run -- CMD"
                        : "This machine can't record as it is; it can read what was recorded elsewhere.");
  r = sl_output_close(&out);
  return r < 0 ? SL_EXIT_USAGE : able ? SL_EXIT_OK : SL_EXIT_CHECK_FAILED;
}

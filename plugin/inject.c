/*
 * How the library gets into the process: CUDA loads it for CUDA_INJECTION64_PATH and calls InitializeInjection inside
 * the first cuInit. From there it attaches itself to NVTX and, in a Python program, brings the companion in. Where that
 * variable can't be set, under Nsight Compute, the same happens at the program's first NVTX call.
 */
#include "plugin/log/event_log.h"
#include "plugin/log/thread_state.h"
#include "plugin/process/config.h"
#include "plugin/process/package_place.h"
#include "plugin/sources/source.h"
#include "plugin/sources/source_nvtx.h"
#include "shardledger.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int pending_call(void *argument);
static int (*py_run)(const char *code);

static char plugin_path[PATH_MAX];

/* The file of this library, absolute; "" when it is linked into the program. */
static void find_plugin_path(void) {
  Dl_info info;
  if (!dladdr((void *)(uintptr_t)find_plugin_path, &info) || !info.dli_fname || !realpath(info.dli_fname, plugin_path))
    plugin_path[0] = '\0';
}

/* What goes on Python's path; its elsewhere/shardledger.py says why that. "" without a package. */
static void companion_directory(char *out, size_t size) {
  if (sl_find_package(plugin_path, out, size - sizeof("/elsewhere")) == 0)
    strcat(out, "/elsewhere");
}

static char *append_hex(char *at, const char *text) {
  for (; *text; text++)
    at += sprintf(at, "%02x", (unsigned char)*text);
  return at;
}

/*
 * Runs on the main thread, with the interpreter's lock. The code keeps to a namespace of its own, lets no exception
 * reach the user's program, and leaves an interruption by the user pending. Paths go in as hexadecimal digits, so that
 * no path needs quoting. A package that this Python has comes before the library's own.
 */
static int attach_companion(void *unused) {
  static const char format[] = "exec('''\n"
                               "def text(digits):\n"
                               "  return bytes.fromhex(digits).decode('utf-8', 'surrogateescape')\n"
                               "try:\n"
                               "  import sys\n"
                               "  directory = text('%s')\n"
                               "  if directory and directory not in sys.path:\n"
                               "    sys.path.append(directory)\n"
                               "  import shardledger\n"
                               "  shardledger.attach()\n"
                               "except KeyboardInterrupt:\n"
                               "  import _thread\n"
                               "  _thread.interrupt_main()\n"
                               "except BaseException as error:\n"
                               "  try:\n"
                               "    import ctypes\n"
                               "    reason = (type(error).__name__ + ': ' + str(error)).encode('utf-8', 'replace')\n"
                               "    plugin = ctypes.CDLL(text('%s') or None)\n"
                               "    plugin.sl_source_state(b'companion', b'failed', reason)\n"
                               "  except BaseException:\n"
                               "    pass\n"
                               "''', {'__name__': 'shardledger_injection'})\n";
  static char code[sizeof(format) + 4 * PATH_MAX];
  static char directory_digits[2 * PATH_MAX], plugin_digits[2 * PATH_MAX];
  char directory[PATH_MAX];
  companion_directory(directory, sizeof(directory));
  *append_hex(directory_digits, directory) = '\0';
  *append_hex(plugin_digits, plugin_path) = '\0';
  snprintf(code, sizeof(code), format, directory_digits, plugin_digits);
  if (py_run(code) != 0)
    sl_source_state("companion", "failed", "Python could not run the attaching code");
  return 0;
}

static void schedule_companion(void) {
  if (strcmp(sl_option_text(SL_OPTION_python), "off") == 0) {
    sl_source_state("companion", "off", "SHARDLEDGER_PYTHON=off");
    return;
  }
  int (*is_initialized)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
  int (*add_pending_call)(pending_call *, void *) =
      (int (*)(pending_call *, void *))dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
  py_run = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
  if (!is_initialized || !add_pending_call || !py_run || !is_initialized())
    return; /* Not a Python program. */
  if (add_pending_call(attach_companion, NULL) != 0)
    sl_source_state("companion", "failed", "Python's queue of pending calls is full");
}

/* NCCL reads its variable when the first communicator is made, which needs CUDA. */
static void attach_to_nccl(void) {
  const char *other = getenv("NCCL_PROFILER_PLUGIN");
  if (strcmp(sl_option_text(SL_OPTION_nccl), "off") == 0)
    sl_source_state("nccl_profiler", "off", "SHARDLEDGER_NCCL=off");
  else if (other && strcmp(other, plugin_path) != 0)
    sl_source_state("nccl_profiler", "off", "NCCL_PROFILER_PLUGIN names another plugin");
  else if (plugin_path[0])
    setenv("NCCL_PROFILER_PLUGIN", plugin_path, 0);
}

/*
 * CUDA loads one injection library. Where `shardledger run` found another tool's in that place it hands it on in this
 * variable: it is initialised first, so that CUPTI's one seat is its own, and we record what does not need it.
 */
static void initialize_other_injection(void) {
  const char *path = secure_getenv("SHARDLEDGER_OTHER_INJECTION");
  if (!path || !*path || strcmp(path, plugin_path) == 0)
    return;
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
  if (!initialize)
    sl_say("%s, which was in CUDA_INJECTION64_PATH, can't be loaded: %s", path, dlerror());
  else
    initialize();
}

static void inject(void) {
  static int done;
  int cancellation;
  if (__atomic_exchange_n(&done, 1, __ATOMIC_ACQ_REL))
    return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation); /* loading libraries would be a place for it */
  sl_log_init();
  find_plugin_path();
  initialize_other_injection();
  /* Early enough for every library that has not made an NVTX call yet; `shardledger run` sets it for all of them. */
  if (plugin_path[0])
    setenv("NVTX_INJECTION64_PATH", plugin_path, 0);
  attach_to_nccl();
  sl_sources_start();
  schedule_companion();
  pthread_setcancelstate(cancellation, NULL);
}

/* Called by the CUDA driver. Anything but 1 would be reported to the user as a failed injection. */
SL_API int InitializeInjection(void) {
  inject();
  return 1;
}

/*
 * Called by each library's copy of NVTX at its first call. Always 1: after a 0 NVTX would unload this library, which is
 * in use elsewhere. Where `shardledger run` could not leave the attaching to CUDA (SHARDLEDGER_ATTACH=nvtx), this does
 * it.
 */
SL_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);

SL_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  sl_log_init();
  sl_source_nvtx_attach(get_export_table);
  const char *by = secure_getenv("SHARDLEDGER_ATTACH");
  if (by && strcmp(by, "nvtx") == 0)
    inject();
  return 1;
}

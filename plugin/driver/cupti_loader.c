/*
 * A process is to have one CUPTI, PyTorch's: so the copy that is loaded comes first, then the one that belongs to the
 * process's libcudart, and a toolkit's last.
 */
#include "cupti_loader.h"
#include "plugin/process/config.h"
#include "plugin/process/undisturbed.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST_VERSION 18u /* CUDA 12.0 */

static const char *const sonames[] = {"libcupti.so.13", "libcupti.so.12"};

/* Where CUPTI stands in relation to libcudart: the wheels of CUDA 13, of CUDA 12, and a toolkit. */
static const char *const beside_runtime[] = {"", "../../cuda_cupti/lib/", "../extras/CUPTI/lib64/",
                                             "../../../extras/CUPTI/lib64/"};
static const char *const inside_toolkit[] = {"/extras/CUPTI/lib64/", "/lib64/", "/lib/", "/targets/x86_64-linux/lib/"};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void *open_in(const char *directory, const char *const *subdirectories, size_t count) {
  for (size_t i = 0; i < count; i++) {
    for (size_t j = 0; j < COUNT(sonames); j++) {
      char path[PATH_MAX];
      int length = snprintf(path, sizeof(path), "%s%s%s", directory, subdirectories[i], sonames[j]);
      void *library = length > 0 && (size_t)length < sizeof(path) ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
      if (library)
        return library;
    }
  }
  return NULL;
}

/* Copies the directory of the loaded libcudart, with its slash, and stops there. */
static int find_runtime(struct dl_phdr_info *library, size_t size, void *directory) {
  const char *slash = strrchr(library->dlpi_name, '/');
  if (!slash || strncmp(slash + 1, "libcudart.so", strlen("libcudart.so")) != 0)
    return 0;
  size_t length = (size_t)(slash + 1 - library->dlpi_name);
  if (length >= PATH_MAX)
    return 0;
  memcpy(directory, library->dlpi_name, length);
  ((char *)directory)[length] = '\0';
  return 1;
}

static void *open_library(void) {
  for (int flags = RTLD_NOLOAD;; flags = 0) { /* one that is loaded is better than any that could be */
    for (size_t i = 0; i < COUNT(sonames); i++) {
      void *library = dlopen(sonames[i], RTLD_LAZY | RTLD_LOCAL | flags);
      if (library)
        return library;
    }
    if (flags == 0)
      break;
  }
  char directory[PATH_MAX];
  void *library = NULL;
  if (dl_iterate_phdr(find_runtime, directory)) /* opened outside of the pass: the loader's lock is held there */
    library = open_in(directory, beside_runtime, COUNT(beside_runtime));
  static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH"};
  for (size_t i = 0; i < COUNT(homes) && !library; i++) {
    const char *home = secure_getenv(homes[i]);
    if (home && *home)
      library = open_in(home, inside_toolkit, COUNT(inside_toolkit));
  }
  if (!library)
    library = open_in("/usr/local/cuda", inside_toolkit, COUNT(inside_toolkit));
  return library;
}

static struct sl_cupti loaded;
static bool usable;

static void load(void) {
  void *library = open_library();
  if (!library)
    return;
  bool complete = true;
#define REQUIRED(name)                                                                                                 \
  *(void **)&loaded.name = dlsym(library, "cupti" #name);                                                              \
  if (!loaded.name) {                                                                                                  \
    sl_debug("libcupti has no cupti" #name);                                                                           \
    complete = false;                                                                                                  \
  }
#define OPTIONAL(name) *(void **)&loaded.name = dlsym(library, "cupti" #name);
  SL_CUPTI_FUNCTIONS(REQUIRED, OPTIONAL)
  OPTIONAL(Subscribe_v2)
#undef REQUIRED
#undef OPTIONAL
  usable = complete && loaded.GetVersion(&loaded.version) == CUPTI_SUCCESS && loaded.version >= OLDEST_VERSION;
}

const struct sl_cupti *sl_cupti_load(void) {
  static struct sl_once once = SL_ONCE_INIT;
  sl_once(&once, load);
  return usable ? &loaded : NULL;
}

const char *sl_cupti_result(const struct sl_cupti *cupti, CUptiResult result) {
  const char *text = NULL;
  if (cupti->GetResultString(result, &text) != CUPTI_SUCCESS || !text)
    text = "unknown CUPTI error";
  return text;
}

/* The driver is asked for again at each call until it is there: the plugin may be loaded long before CUDA is. */
#include "driver_api.h"

#include "plugin/process/undisturbed.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

static struct sl_driver driver;

static bool load(void) {
  void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* kept: its functions are called until the end */
  if (!library)
    return false;
  bool complete = true;
#define FUNCTION(field, name, parameters)                                                                              \
  *(void **)&driver.field = dlsym(library, name);                                                                      \
  complete = complete && driver.field;
  SL_DRIVER_FUNCTIONS(FUNCTION)
#undef FUNCTION
  return complete;
}

const struct sl_driver *sl_driver_load(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bool usable;
  struct sl_undisturbed before;
  sl_undisturbed_begin(&before);
  pthread_mutex_lock(&lock);
  if (!usable)
    usable = load(); /* again at the next call when the driver is not there yet */
  bool found = usable;
  pthread_mutex_unlock(&lock);
  sl_undisturbed_end(&before);
  return found ? &driver : NULL;
}

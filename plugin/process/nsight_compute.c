/* There is no call that tells it, so it is known by the variables that it sets, and by its name. */
#include "nsight_compute.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/*
 * An environment recorded under ncu 2024.3.2 and published with a study of it has all three, GROMACS knows ncu by the
 * first one, other benchmarks by the second or the third.
 */
bool sl_is_under_nsight_compute(void) {
  static const char *const variables[] = {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "NV_NSIGHT_INJECTION_PORT_BASE",
                                          "NV_COMPUTE_PROFILER_PERFWORKS_DIR"};
  for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
    if (secure_getenv(variables[i]))
      return true;
  return false;
}

bool sl_is_nsight_compute(const char *command) {
  const char *name = basename(command);
  return strcmp(name, "ncu") == 0 || strcmp(name, "nv-nsight-cu-cli") == 0; /* the latter until 2020.1 */
}

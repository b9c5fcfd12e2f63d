/* Fills the placeholders of a run directory's name from the host and from what launchers put into the environment. */
#include "placeholders.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const rank_variables[] = {SL_RANK_VARIABLES};
static const char *const job_variables[] = {"SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID",
                                            "TORCHELASTIC_RUN_ID"};

/* As part of a file's name. */
static void make_plain(char *text) {
  for (char *c = text; *c; c++)
    if (!isalnum((unsigned char)*c) && !(c > text && strchr("-_.", *c)))
      *c = '_';
}

void sl_host_name(char *out, size_t size) {
  if (gethostname(out, size) < 0)
    snprintf(out, size, "host");
  out[size - 1] = '\0';
  make_plain(out);
}

static void first_set(const char *const *variables, size_t count, char *out, size_t size) {
  const char *value = NULL;
  for (size_t i = 0; i < count && !(value && *value); i++)
    value = secure_getenv(variables[i]);
  snprintf(out, size, "%s", value && *value ? value : "none");
  make_plain(out);
}

int sl_placeholders_fill(const char *text, char *out, size_t size) {
  size_t length = 0;
  for (const char *c = text; *c; c++) {
    char value[128] = {*c, '\0'};
    const char placeholder = *c == '%' ? c[1] : '\0';
    if (placeholder == 'h')
      sl_host_name(value, sizeof(value));
    else if (placeholder == 'r')
      first_set(rank_variables, sizeof(rank_variables) / sizeof(*rank_variables), value, sizeof(value));
    else if (placeholder == 'j')
      first_set(job_variables, sizeof(job_variables) / sizeof(*job_variables), value, sizeof(value));
    if (placeholder && strchr("hrj%", placeholder))
      c++; /* both characters are read; of "%%" the first one stays */
    const size_t more = strlen(value);
    if (length + more >= size)
      return -ENAMETOOLONG;
    memcpy(out + length, value, more);
    length += more;
  }
  out[length] = '\0';
  return 0;
}

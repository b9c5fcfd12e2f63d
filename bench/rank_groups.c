/* How long finding the groups of ranks takes: rank_groups LEDGER finds them anew, in the ledger, and prints seconds. */
#include "storage/run/rank_groups.h"

#include <stdio.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  struct sl_error error = {{0}};
  struct sl_db *db = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: rank_groups LEDGER\n");
    return 2;
  }
  int r = sl_db_open(argv[1], SL_DB_WRITE, &db, &error);
  const double start = now();
  if (r == 0)
    r = sl_rank_groups_fill(db, &error);
  if (r < 0)
    fprintf(stderr, "%s\n", error.text);
  else
    printf("%.3f s of processor time\n", now() - start);
  db = sl_db_close(db);
  return r < 0 ? 2 : 0;
}

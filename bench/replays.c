/*
 * How long a rank's recorded requests take to play again, and the least that they need to find: replays LEDGER… prints,
 * of each rank, processor time for 2,000 allocations and for 10^6. Of less than a hundredth of so many the time is that
 * of the beginning, which is not scaled.
 */
#include "storage/predict/replay/floor.h"
#include "storage/predict/replay/replay.h"
#include "storage/predict/tape/tape.h"

#include <stdio.h>
#include <time.h>

enum { TIMES = 5, STEP = 2000 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The fastest of some. */
static int replay_time(const struct sl_tape *tape, double *seconds) {
  const struct sl_replay_options options = {.config = NULL};
  *seconds = 1e9;
  for (int i = 0; i < TIMES; i++) {
    struct sl_replay replay = {0};
    const double start = now();
    const int r = sl_replay_run(tape, &options, &replay);
    const double took = now() - start;
    sl_replay_free(&replay);
    if (r < 0)
      return r;
    *seconds = took < *seconds ? took : *seconds;
  }
  return 0;
}

static int rank_time(struct sl_db *db, const char *path, uint32_t rank, struct sl_error *error) {
  struct sl_tape tape;
  struct sl_floor floor;
  double replayed = 0;
  const double start = now();
  int r = sl_tape_read(db, rank, &tape, error);
  if (r < 0)
    return r;
  const double read = now() - start, allocations = (double)tape.recorded_count;
  r = replay_time(&tape, &replayed);
  const double begin = now();
  const int found = r < 0 ? r : sl_floor_find(&tape, &floor);
  const double floored = now() - begin;
  printf("%s\t%u\t%zu allocations\t%.1f ms read\t", path, rank, tape.recorded_count, read * 1e3);
  if (tape.recorded_count < STEP / 100)
    printf("%.3f ms for all replayed\t", replayed * 1e3);
  else
    printf("%.3f ms for 2,000 replayed\t", replayed * 1e3 / allocations * STEP);
  if (found < 0)
    printf("no floor\n");
  else
    printf("%.2f s for 10^6 to their floor\n", floored / allocations * 1e6);
  sl_tape_free(&tape);
  return r;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: replays LEDGER...\n");
    return 2;
  }
  for (int i = 1; i < argc; i++) {
    struct sl_error error = {{0}};
    struct sl_db *db = NULL;
    struct sl_statement *row = NULL;
    int r = sl_db_open(argv[i], SL_DB_READ, &db, &error);
    r = r < 0 ? r : sl_db_ask(db, "SELECT rank FROM rank ORDER BY rank", NULL, &row, &error);
    while (r >= 0 && (r = sl_statement_step(row, &error)) > 0)
      if ((r = rank_time(db, argv[i], (uint32_t)sl_column_int(row, 0), &error)) < 0) {
        fprintf(stderr, "%s: %s\n", argv[i], error.text);
        r = 0;
      }
    row = sl_statement_close(row);
    if (r < 0)
      fprintf(stderr, "%s: %s\n", argv[i], error.text);
    db = sl_db_close(db);
  }
  return 0;
}

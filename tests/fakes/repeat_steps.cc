// repeat_steps FROM TO FIRST LAST TIMES [RANKS]: writes a long run from a recorded one; both are process directories.
// With RANKS there are so many, TO-0, TO-1 …, which share one file on disk.
#include "fakes/repeated_run.h"

#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv) {
  if (argc < 6 || argc > 7) {
    fprintf(stderr, "usage: repeat_steps FROM TO FIRST LAST TIMES [RANKS]\n");
    return 2;
  }
  RepeatedRun run;
  run.from = argv[1];
  run.to = argv[2];
  run.first = atoll(argv[3]);
  run.last = atoll(argv[4]);
  run.times = strtoull(argv[5], nullptr, 10);
  run.ranks = argc > 6 ? (uint32_t)atoi(argv[6]) : 1;
  std::string error;
  uint64_t events = repeat_steps(run, error);
  if (!events) {
    fprintf(stderr, "repeat_steps: %s\n", error.c_str());
    return 1;
  }
  printf("%llu\n", (unsigned long long)events);
  return 0;
}

/* How often a stress test goes round: a few times as a test, SHARDLEDGER_STRESS times under scripts/stress. */
#ifndef SHARDLEDGER_TESTS_ROUNDS_H
#define SHARDLEDGER_TESTS_ROUNDS_H

#include <cstdlib>

inline int rounds(int as_a_test) {
  const char *asked = getenv("SHARDLEDGER_STRESS");
  return asked && atoi(asked) > 0 ? atoi(asked) : as_a_test;
}

#endif

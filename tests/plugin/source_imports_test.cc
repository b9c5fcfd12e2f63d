/* What the plugin asks of the C library: nothing that ends the process. */
#include "fakes/sanitizers.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <set>
#include <string>

namespace {

TEST(SourceImports, NothingThatEndsTheProcess) {
  const std::set<std::string> ends = {"exit",  "_exit",         "_Exit", "quick_exit",  "abort",
                                      "raise", "__assert_fail", "kill",  "pthread_exit"};
  FILE *names = popen("nm -D --undefined-only " PLUGIN, "r");
  ASSERT_NE(names, nullptr);
  int count = 0;
  char name[512];
  while (fscanf(names, " U %511s", name) == 1 || fscanf(names, " w %511s", name) == 1) {
    const std::string plain = std::string(name).substr(0, std::string(name).find('@'));
    EXPECT_EQ(ends.count(plain), 0u) << plain;
    count++;
  }
  pclose(names);
  if (!SANITIZED) {
    EXPECT_GT(count, 20) << "nm was to list them";
  }
}

} // namespace

// A text in memory is whole or not there at all, whichever request for memory fails while it is written.
#include "fakes/failing_malloc.h"

extern "C" {
#include "storage/memory_file.h"
}

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace {

// What a caller does with it: lines, one by one, more than any buffer has.
struct Written {
  char *text;
  size_t bytes;
};

Written write_lines(int lines) {
  sl_memory_file memory;
  Written written{};
  if (FILE *file = sl_memory_file_open(&memory))
    for (int i = 0; i < lines; i++)
      fprintf(file, "line %d of a text\n", i);
  written.text = sl_memory_file_close(&memory, &written.bytes);
  return written;
}

std::string lines_of(int lines) {
  std::string text;
  for (int i = 0; i < lines; i++)
    text += "line " + std::to_string(i) + " of a text\n";
  return text;
}

class MemoryFile : public testing::TestWithParam<int> {};

TEST_P(MemoryFile, IsWholeOrNotThere) {
  const std::string whole = lines_of(GetParam());
  failing_malloc_begin(0, false);
  Written written = write_lines(GetParam());
  const unsigned long requests = failing_malloc_end();
  ASSERT_NE(written.text, nullptr);
  EXPECT_EQ(std::string(written.text, written.bytes), whole);
  free(written.text);
  ASSERT_GT(requests, 1u);
  int refused = 0;
  for (bool on : {false, true})
    for (unsigned long at = 1; at <= requests; at++) {
      failing_malloc_begin(at, on);
      written = write_lines(GetParam());
      failing_malloc_end();
      SCOPED_TRACE("request " + std::to_string(at) + (on ? " and all that follow" : ""));
      if (written.text) {
        EXPECT_EQ(std::string(written.text, written.bytes), whole);
      } else {
        refused++;
      }
      free(written.text);
    }
  EXPECT_GE(refused, 2) << "what can't be done without is refused";
}

INSTANTIATE_TEST_SUITE_P(Of, MemoryFile, testing::Values(1, 100, 10000));

} // namespace

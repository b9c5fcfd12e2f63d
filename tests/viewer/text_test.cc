#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

extern "C" {
#include "output/text.h"
}

namespace {

std::string clean(const std::string &text) {
  char *result = sl_clean_text(text.c_str());
  std::string copy = result;
  free(result);
  return copy;
}

TEST(Text, PlainNamesStayAsTheyAre) {
  EXPECT_EQ(clean("model.layers.0 (FSDP)"), "model.layers.0 (FSDP)");
  EXPECT_EQ(clean("modèle.層"), "modèle.層");
}

TEST(Text, EscapeSequencesCannotSteerATerminal) {
  EXPECT_EQ(clean("\033[2J\033]0;owned\007"), "\\x1b[2J\\x1b]0;owned\\x07");
  EXPECT_EQ(clean("a\rb\nc\td"), "a\\x0db\\x0ac\\x09d");
  EXPECT_EQ(clean("\x7f"), "\\x7f");
}

TEST(Text, EightBitControlCharactersAndReorderingMarksAreEscapedToo) {
  EXPECT_EQ(clean("\xc2\x9b"
                  "31m"),
            "\\x9b31m");
  EXPECT_EQ(clean("\u202egpj.exe"), "\\u202egpj.exe");
}

TEST(Text, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(clean("\xff\xfe"), "\uFFFD\uFFFD");
  EXPECT_EQ(clean("\xc0\xaf"), "\uFFFD\uFFFD") << "an overlong encoding of /";
  EXPECT_EQ(clean("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD") << "half a surrogate pair";
  EXPECT_EQ(clean("cut \xe5\xb1"), "cut \uFFFD\uFFFD");
}

} // namespace

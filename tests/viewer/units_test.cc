#include <cerrno>
#include <gtest/gtest.h>
#include <string>

extern "C" {
#include "output/units.h"
}

namespace {

std::string bytes(int64_t value, bool exact = false) {
  char buffer[SL_UNIT_CHARS];
  return sl_format_bytes(buffer, value, exact);
}

std::string duration(int64_t ns) {
  char buffer[SL_UNIT_CHARS];
  return sl_format_duration(buffer, ns);
}

std::string share(double value) {
  char buffer[SL_UNIT_CHARS];
  return sl_format_share(buffer, value);
}

TEST(Units, BytesTakeTheUnitThatReadsBest) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(1023), "1023 B");
  EXPECT_EQ(bytes(1536), "1.5 KiB");
  EXPECT_EQ(bytes(851443712), "812.0 MiB");
  EXPECT_EQ(bytes(2050293760), "1.91 GiB");
  EXPECT_EQ(bytes(INT64_MAX), "8.00 EiB");
}

TEST(Units, BytesNeverRoundUpTo1024OfAUnit) {
  EXPECT_EQ(bytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(bytes(1024LL * 1024 * 1024 - 1), "1.00 GiB");
}

TEST(Units, NegativeBytesKeepTheirUnit) {
  EXPECT_EQ(bytes(-33554432), "-32.0 MiB");
  EXPECT_EQ(bytes(-5), "-5 B");
}

TEST(Units, ExactBytesArePlainNumbers) {
  EXPECT_EQ(bytes(2050293760, true), "2050293760");
}

TEST(Units, DurationsRangeFromNanosecondsToMinutes) {
  EXPECT_EQ(duration(640), "640 ns");
  EXPECT_EQ(duration(12300), "12.3 us");
  EXPECT_EQ(duration(38200000), "38.2 ms");
  EXPECT_EQ(duration(1240000000), "1.24 s");
  EXPECT_EQ(duration(125000000000), "2 min 05 s");
}

TEST(Units, InstantsAreUtc) {
  char buffer[SL_UNIT_CHARS];
  EXPECT_STREQ(sl_format_instant(buffer, 1764279603123456789), "2025-11-27 21:40:03.123 UTC");
}

TEST(Units, SmallSharesDoNotLookLikeNone) {
  EXPECT_EQ(share(0), "0.0%");
  EXPECT_EQ(share(0.00001), "<0.1%");
  EXPECT_EQ(share(0.446), "44.6%");
  EXPECT_EQ(sl_share(1, 0), 0);
}

int64_t parsed(const char *text) {
  int64_t bytes = -7;
  int r = sl_parse_bytes(text, &bytes);
  return r < 0 ? r : bytes;
}

TEST(Units, SizesAreReadStrictly) {
  EXPECT_EQ(parsed("40GiB"), 40LL << 30);
  EXPECT_EQ(parsed("1.5 MiB"), 3 << 19);
  EXPECT_EQ(parsed("1.5GB"), 1500000000);
  EXPECT_EQ(parsed("4096"), 4096);
  EXPECT_EQ(parsed("0"), 0);
  EXPECT_EQ(parsed("12 B"), 12);
  for (const char *text : {"", "GiB", "-1GiB", "+1GiB", "1G", "1gib", "1 ", " 1", "1.GiB", ".5GiB", "1.5", "1.5B",
                           "1e3", "0x10", "1GiBs", "1  GiB", "1,5GiB", "nan"})
    EXPECT_EQ(parsed(text), -EINVAL) << text;
  EXPECT_EQ(parsed("8192PiB"), -ERANGE);
  EXPECT_EQ(parsed("99999999999999999999999"), -ERANGE);
}

TEST(Units, PercentagesAreReadStrictly) {
  double share = -1;
  EXPECT_EQ(sl_parse_percent("0.5%", &share), 0);
  EXPECT_DOUBLE_EQ(share, 0.005);
  EXPECT_EQ(sl_parse_percent("1 %", &share), 0);
  EXPECT_DOUBLE_EQ(share, 0.01);
  for (const char *text : {"", "1", "%", "-1%", "1%%", "1.%"})
    EXPECT_EQ(sl_parse_percent(text, &share), -EINVAL) << text;
}

} // namespace

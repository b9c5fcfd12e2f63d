/* Where the Python package is found that was installed with the library. */
extern "C" {
#include "plugin/process/package_place.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

const std::string kRecord = "shardledger-" SL_VERSION ".dist-info";

/* An installation's prefix, removed with the test. */
class PackagePlace : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/shardledger-prefix-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    prefix = name;
  }
  void TearDown() override {
    fs::remove_all(prefix);
  }
  fs::path prefix;
};

/* What is found from below this prefix, relative to it; "" for nothing. */
std::string found_below(const fs::path &prefix) {
  char out[PATH_MAX];
  fs::create_directories(prefix / "lib");
  const int r = sl_find_package((prefix / "lib" / "libshardledger.so").c_str(), out, sizeof(out));
  EXPECT_EQ(r, *out ? 0 : -ENOENT);
  return *out ? fs::path(out).lexically_normal().lexically_relative(prefix).string() : "";
}

void install(const fs::path &packages, const std::string &record) {
  fs::create_directories(packages / "shardledger");
  fs::create_directories(packages / record);
}

TEST_F(PackagePlace, IsBesideTheLibraryWhereCMakeInstalled) {
  EXPECT_EQ(found_below(prefix), "");
  fs::create_directories(prefix / "lib" / "python" / "shardledger");
  EXPECT_EQ(found_below(prefix), "lib/python/shardledger");
}

TEST_F(PackagePlace, IsWherePipPutIt) {
  for (const char *packages :
       {"lib/python3.12/site-packages", "lib/python3/dist-packages", "lib64/python3.11/site-packages", "."}) {
    fs::remove_all(prefix);
    install(prefix / packages, kRecord);
    EXPECT_EQ(found_below(prefix), (fs::path(packages) / "shardledger").lexically_normal().string());
  }
}

TEST_F(PackagePlace, IsNotThatOfAnotherVersionThatAnOlderPythonHas) {
  install(prefix / "lib/python3.10/site-packages", "shardledger-0.0.1.dist-info");
  EXPECT_EQ(found_below(prefix), "");
  install(prefix / "lib/python3.12/site-packages", kRecord);
  EXPECT_EQ(found_below(prefix), "lib/python3.12/site-packages/shardledger");
}

TEST_F(PackagePlace, MayHaveAnyName) {
  const fs::path whole = prefix;
  prefix /= "a [b] *?\\ é";
  install(prefix / "lib/python3.12/site-packages", kRecord);
  EXPECT_EQ(found_below(prefix), "lib/python3.12/site-packages/shardledger");
  char out[16];
  EXPECT_EQ(sl_find_package((prefix / "lib" / "libshardledger.so").c_str(), out, sizeof(out)), -ENOENT);
  EXPECT_STREQ(out, "");
  EXPECT_EQ(sl_find_package("libshardledger.so", out, sizeof(out)), -ENOENT);
  prefix = whole;
}

} // namespace

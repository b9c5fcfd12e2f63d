/* The environment options: defaults, what is valid, and what is said about the rest. */
#include "plugin/recorded.h"

extern "C" {
#include "plugin/process/config.h"
}

#include <gtest/gtest.h>

#include <algorithm>

#include <unistd.h>

namespace {

/* Runs body where the options are read from this environment; returns what was written to stderr. */
std::string with(Environment environment, const std::function<void()> &body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  environment.emplace("SHARDLEDGER_LOG", "info");
  record(environment, [&] {
    dup2(ends[1], STDERR_FILENO);
    body();
  });
  close(ends[1]);
  std::string out(65536, '\0');
  ssize_t length = read(ends[0], &out[0], out.size());
  close(ends[0]);
  out.resize(length > 0 ? (size_t)length : 0);
  return out;
}

TEST(Config, HasDefaults) {
  std::string said = with({{"SHARDLEDGER_KERNELS", ""}}, [] {
    EXPECT_STREQ(sl_option_text(SL_OPTION_kernels), "nccl");
    EXPECT_STREQ(sl_option_text(SL_OPTION_steps), "auto");
    EXPECT_STREQ(sl_option_text(SL_OPTION_modules), "fsdp");
    EXPECT_EQ(sl_option_max_bytes(), 0u);
  });
  EXPECT_EQ(said, "");
}

TEST(Config, TakesWhatIsValid) {
  std::string said = with({{"SHARDLEDGER_KERNELS", "none"},
                           {"SHARDLEDGER_STEPS", "10:20"},
                           {"SHARDLEDGER_TORCH", "history"},
                           {"SHARDLEDGER_MODULES", "3"},
                           {"SHARDLEDGER_MAX_BYTES", "2GiB"}},
                          [] {
                            EXPECT_STREQ(sl_option_text(SL_OPTION_kernels), "none");
                            EXPECT_STREQ(sl_option_text(SL_OPTION_steps), "10:20");
                            EXPECT_STREQ(sl_option_text(SL_OPTION_torch), "history");
                            EXPECT_STREQ(sl_option_text(SL_OPTION_modules), "3");
                            EXPECT_EQ(sl_option_max_bytes(), 2ull << 30);
                          });
  EXPECT_EQ(said, "");
}

TEST(Config, SaysInOneLineWhatIsNotValidAndUsesTheDefault) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"SHARDLEDGER_KERNELS", "some"},
                                                                  {"SHARDLEDGER_KERNELS", "nccl|all"},
                                                                  {"SHARDLEDGER_STEPS", "5"},
                                                                  {"SHARDLEDGER_STEPS", "9:3"},
                                                                  {"SHARDLEDGER_STEPS", "-1:3"},
                                                                  {"SHARDLEDGER_MODULES", "N"},
                                                                  {"SHARDLEDGER_MODULES", "deep"},
                                                                  {"SHARDLEDGER_MAX_BYTES", "lots"},
                                                                  {"SHARDLEDGER_MAX_BYTES", "5 bananas"},
                                                                  {"SHARDLEDGER_MAX_BYTES", "99999999TiB"},
                                                                  {"SHARDLEDGER_PYTHON", "on"},
                                                                  {"SHARDLEDGER_LOG", "loud"}};
  for (const auto &[name, value] : wrong) {
    std::string said = with({{name, value}}, [] {
      EXPECT_STREQ(sl_option_text(SL_OPTION_kernels), "nccl");
      EXPECT_STREQ(sl_option_text(SL_OPTION_steps), "auto");
      EXPECT_STREQ(sl_option_text(SL_OPTION_modules), "fsdp");
      EXPECT_EQ(sl_option_max_bytes(), 0u);
    });
    EXPECT_EQ(said.find("shardledger: " + name + "=" + value + " is not valid"), 0u) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
}

TEST(Config, SaysNothingWhenAskedTo) {
  EXPECT_EQ(with({{"SHARDLEDGER_LOG", "quiet"}, {"SHARDLEDGER_STEPS", "x"}}, [] { sl_say("nobody hears"); }), "");
  EXPECT_EQ(with({}, [] { sl_debug("nobody hears"); }), "");
  EXPECT_EQ(with({{"SHARDLEDGER_LOG", "debug"}}, [] { sl_debug("%d is heard", 7); }), "shardledger: 7 is heard\n");
}

TEST(Config, PrintsEveryOption) {
  char *text = nullptr;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  sl_options_print(stream);
  fclose(stream);
  for (const char *name : {"DIR", "KERNELS", "STEPS", "CUPTI", "TORCH", "PYTHON", "MODULES", "MAX_BYTES", "LOG"})
    EXPECT_NE(std::string(text).find(std::string("SHARDLEDGER_") + name + "\n"), std::string::npos) << name;
  free(text);
}

} // namespace

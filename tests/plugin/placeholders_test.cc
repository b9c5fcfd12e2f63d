/* Placeholders of a run directory's name: what they are filled with, and what is left alone. */
extern "C" {
#include "plugin/process/placeholders.h"
}

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>

#include <unistd.h>

namespace {

/* In a process whose launcher set nothing but this. */
std::string filled(const std::string &text, const std::map<std::string, std::string> &environment = {}) {
  for (const char *name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID",
                           "LSB_JOBID", "TORCHELASTIC_RUN_ID"})
    unsetenv(name);
  for (const auto &[name, value] : environment)
    setenv(name.c_str(), value.c_str(), 1);
  char out[4096];
  EXPECT_EQ(sl_placeholders_fill(text.c_str(), out, sizeof(out)), 0);
  return out;
}

TEST(Placeholders, AreTheHostTheRankAndTheJobOfALauncher) {
  EXPECT_EQ(filled("/runs/%j/rank%r", {{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "3"}}), "/runs/4711/rank3");
  EXPECT_EQ(filled("%j-%r", {{"TORCHELASTIC_RUN_ID", "exp 1/b"}, {"RANK", "12"}}), "exp_1_b-12");
  EXPECT_EQ(filled("%r%r", {{"OMPI_COMM_WORLD_RANK", "5"}}), "55");
  char host[256];
  ASSERT_EQ(gethostname(host, sizeof(host)), 0);
  EXPECT_EQ(filled("%h"), host);
}

TEST(Placeholders, TorchrunsRankIsTheProcesssAndSlurmsOnlyTheAgents) {
  EXPECT_EQ(filled("%r", {{"RANK", "9"}, {"SLURM_PROCID", "1"}}), "9");
}

TEST(Placeholders, AreNoneWhereNobodyToldAndNeverLeaveTheDirectory) {
  EXPECT_EQ(filled("out-%r-%j"), "out-none-none");
  EXPECT_EQ(filled("%j", {{"SLURM_JOB_ID", "../../etc"}}), "_._.._etc");
  EXPECT_EQ(filled("%j", {{"SLURM_JOB_ID", ""}, {"PBS_JOBID", "7.server"}}), "7.server");
}

TEST(Placeholders, LeaveOtherPercentSignsAlone) {
  EXPECT_EQ(filled("100%/50%%/%d%"), "100%/50%/%d%");
}

TEST(Placeholders, RefuseWhatDoesNotFit) {
  char out[8];
  EXPECT_EQ(sl_placeholders_fill("1234567", out, sizeof(out)), 0);
  EXPECT_EQ(sl_placeholders_fill("12345678", out, sizeof(out)), -ENAMETOOLONG);
  setenv("RANK", "123456", 1);
  EXPECT_EQ(sl_placeholders_fill("a-%r", out, sizeof(out)), -ENAMETOOLONG);
}

} // namespace

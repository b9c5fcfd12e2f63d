"""shardledger_nvtx.h: ranges from native code, in C and in C++, as its own example uses it."""

import os
import subprocess

import pytest

from conftest import HERE, PLUGIN, read_log
from shardledger.kinds import KIND

HEADERS = os.path.join(HERE, "..", "..", "nvtx_ranges")
NVTX = os.environ.get("SHARDLEDGER_NVTX_INCLUDE", "/usr/local/cuda/include")

C = """
#include "shardledger_nvtx.h"
int main(void) {
  sl_nvtx_push(SL_KIND_checkpoint, "save", 7);
  sl_nvtx_pop();
  uint64_t id = sl_nvtx_start(SL_KIND_user, "prefetch", 1);
  sl_nvtx_end(id);
  sl_nvtx_mark(SL_KIND_user, "here", 2);
  return 0;
}
"""
CXX = """
#include "shardledger_nvtx.h"
#include <stdexcept>
int main() {
  try {
    shardledger::range outer(SL_KIND_checkpoint, "save", 7);
    throw std::runtime_error("the range ends all the same");
  } catch (const std::exception &) {
  }
  sl_nvtx_end(sl_nvtx_start(SL_KIND_user, "prefetch", 1));
  sl_nvtx_mark(SL_KIND_user, "here", 2);
}
"""


@pytest.mark.parametrize("language, code", [("c", C), ("c++", CXX)])
def test_ranges_of_native_code_reach_the_log(tmp_path, language, code):
    program = tmp_path / "program"
    compiler, standard = ("cc", "c99") if language == "c" else ("c++", "c++11")
    subprocess.run([compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}",
                    "-isystem", NVTX, "-", "-o", program, "-ldl"], input=code, encoding="utf-8", check=True)
    environment = dict(os.environ, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_DIR=str(tmp_path / "log"))
    subprocess.run([program], env=environment, check=True)
    (directory,) = os.scandir(tmp_path / "log")
    log = read_log(directory.path)
    (push,) = log.of("range_push")
    assert (push["name"], push["category"], push["value"]) == ("save", KIND["checkpoint"], 7)
    assert [event["depth"] for event in log.of("range_pop")] == [0]
    (start,), (end,), (mark,) = log.of("range_start"), log.of("range_end"), log.of("range_mark")
    assert (start["name"], start["value"], start["id"]) == ("prefetch", 1, end["id"])
    assert (mark["name"], mark["value"]) == ("here", 2)
    assert log.of("nvtx_domain")[0]["name"] == "shardledger"


def test_without_a_tool_it_does_nothing(tmp_path):
    program = tmp_path / "program"
    subprocess.run(["cc", "-x", "c", f"-I{HEADERS}", "-isystem", NVTX, "-", "-o", program, "-ldl"], input=C,
                   encoding="utf-8", check=True)
    subprocess.run([program], env=dict(os.environ, SHARDLEDGER_DIR=str(tmp_path / "log")), check=True)
    assert not (tmp_path / "log").exists()

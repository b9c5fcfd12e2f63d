"""The companion without the plugin: its ranges reach whatever NVTX tool is in the process, as Nsight Systems is."""

import os
import subprocess

import pytest

from conftest import HERE
from shardledger.kinds import KIND

NVTX = os.environ.get("SHARDLEDGER_NVTX_INCLUDE", "/usr/local/cuda/include")
SOURCE = os.path.join(HERE, "..", "fakes", "other_nvtx_tool.c")


@pytest.fixture(scope="module")
def calls(tmp_path_factory, start_job):
    """What the tool heard in the domain shardledger: (call, category, name), and the job's directory."""
    directory = tmp_path_factory.mktemp("tool")
    tool, out = directory / "libother.so", directory / "calls"
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-D_GNU_SOURCE", "-isystem", NVTX,
                    SOURCE, "-o", tool], check=True)
    job = start_job("job_plain.py", ranks=1, plugin=False, NVTX_INJECTION64_PATH=str(tool), OTHER_TOOL_OUT=str(out))()
    job.check()
    heard = [line.split("\t") for line in out.read_text().splitlines()]
    return [(call, *map(int, rest[:1]), *rest[1:]) for call, domain, *rest in heard if domain == "shardledger"], job


def ranges(calls, kind):
    return [name for call, *rest in calls if call in ("push", "start") for number, name in [rest] if number == KIND[kind]]


def test_every_kind_of_range_is_there_by_name_and_category(calls):
    heard, job = calls
    assert job.output[0].out.split()[0] == "attached"
    assert len(ranges(heard, "step")) == 2
    assert len(ranges(heard, "forward")) >= 2 and len(ranges(heard, "optimizer_step")) == 2
    assert len(ranges(heard, "backward")) >= 2
    assert ranges(heard, "user") == ["decorated", "user's", "user's"]
    assert "batch é" in ranges(heard, "record_function")  # by the torch bridge, or what stands in for it


def test_the_tool_can_name_the_kinds(calls):
    heard, _ = calls
    assert {name: number for call, number, name in (c for c in heard if c[0] == "category")} == KIND


def test_the_ranges_are_balanced(calls):
    heard, _ = calls
    count = {call: sum(c[0] == call for c in heard) for call in ("push", "pop", "start", "end")}
    assert count["push"] == count["pop"] > 0
    assert count["start"] >= count["end"] >= count["start"] - 1  # the last step is open when the program ends


def test_no_log_is_written(calls):
    _, job = calls
    assert not (job.directory / "log").exists()

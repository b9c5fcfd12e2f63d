"""The companion beside another NVTX tool, as Nsight Systems is: its ranges reach that, and the plugin where there is one."""

import os
import subprocess

import pytest

from conftest import HERE, PLUGIN
from shardledger.kinds import KIND

NVTX = os.environ.get("SHARDLEDGER_NVTX_INCLUDE", "/usr/local/cuda/include")
SOURCE = os.path.join(HERE, "..", "fakes", "other_nvtx_tool.c")


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    library = tmp_path_factory.mktemp("tool") / "libother.so"
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-D_GNU_SOURCE", "-isystem", NVTX,
                    SOURCE, "-o", library], check=True)
    return library


@pytest.fixture(scope="module")
def run(tool, start_job):
    """run(**environment) → what the tool heard in the domain shardledger: (call, category, name), and the job."""

    def run(**environment):
        out = tool.parent / f"calls{len(list(tool.parent.iterdir()))}"
        job = start_job("job_plain.py", ranks=1, plugin=False, NVTX_INJECTION64_PATH=str(tool), OTHER_TOOL_OUT=str(out),
                        **environment)()
        job.check()
        heard = [line.split("\t") for line in out.read_text().splitlines()]
        return [(call, *map(int, rest[:1]), *rest[1:]) for call, domain, *rest in heard if domain == "shardledger"], job

    return run


@pytest.fixture(scope="module")
def calls(run):
    return run()


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


def test_with_the_plugin_both_get_every_range(run):
    heard, job = run(CUDA_INJECTION64_PATH=PLUGIN, SHARDLEDGER_CUPTI="off")
    assert {step for call, _, step in ranges_of(heard) if call == "start"} >= {"step 0", "step 1"}
    (log,) = job.logs()
    domain = next(event["id"] for event in log.of("nvtx_domain") if event["name"] == "shardledger")
    kept = log.of("range_push", "range_start", "range_mark")
    assert all(event["domain"] == domain for event in kept)
    assert [(event.type.removeprefix("range_"), event["category"], event["name"]) for event in kept] == ranges_of(heard)
    opened, closed = (sum(event.type == what for event in log) for what in ("range_push", "range_pop"))
    assert opened == closed > 0
    ended = {event["id"] for event in log.of("range_end")}
    assert {event["id"] for event in log.of("range_start")} - ended <= {log.of("range_start")[-1]["id"]}
    assert [event["reason"] for event in log.of("source_state") if event["source"] == "nvtx"] == [
        "another NVTX tool has the ranges of all libraries; the companion's are recorded too"]


def ranges_of(heard):
    return [(call, *rest) for call, *rest in heard if call in ("push", "start", "mark")]

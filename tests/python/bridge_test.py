"""The torch bridge: compiled once, cached safely, and replaced by something lesser where it can't be had."""

import ctypes
import multiprocessing
import os
import stat
import sys
import types

import pytest
import torch

from shardledger._companion.allocations import compiler
from shardledger.kinds import KIND
from shardledger._companion.signatures import bind

COMPILER = """#!/bin/sh
# Notes each call; compiles by copying a file, slowly.
case "$*" in *--version*) echo "test compiler 1"; exit 0;; esac
echo "$*" >> {log}
{action}
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
sleep 0.3
cp {result} "$out"
"""


@pytest.fixture
def fake_compiler(tmp_path, monkeypatch):
    """A compiler that counts its calls. fake_compiler(action) makes it do something first; .calls() reads the count."""
    log, result, script = tmp_path / "calls", tmp_path / "result.so", tmp_path / "c++"
    result.write_text("binary")

    def make(action=""):
        script.write_text(COMPILER.format(log=log, result=result, action=action))
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))

    make.calls = lambda: log.read_text().splitlines() if log.exists() else []
    make()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return make


def _build(queue, together):
    together.wait()  # else a late one may come after the first one's failure
    try:
        queue.put(compiler.build())
    except compiler.Unavailable as error:
        queue.put("unavailable: " + str(error))


def build_in_processes(count):
    fork = multiprocessing.get_context("fork")
    queue, together = fork.Queue(), fork.Barrier(count)
    processes = [fork.Process(target=_build, args=(queue, together)) for _ in range(count)]
    for process in processes:
        process.start()
    results = {queue.get(timeout=600) for _ in processes}
    for process in processes:
        process.join()
    return results


def test_eight_ranks_that_start_together_compile_once(fake_compiler):
    (path,) = build_in_processes(8)
    assert len(fake_compiler.calls()) == 1
    with open(path) as file:
        assert file.read() == "binary"
    assert compiler.build() == path
    assert len(fake_compiler.calls()) == 1
    assert sorted(os.listdir(os.path.dirname(path))) == ["bridge.so", "lock"], "nothing temporary is left"


def test_ranks_that_waited_for_a_failure_do_not_repeat_it(fake_compiler):
    fake_compiler("sleep 0.5; echo 'x.cpp:1: error: no luck'; exit 1")
    (reason,) = build_in_processes(4)
    assert "no luck" in reason
    assert len(fake_compiler.calls()) < 2 * 3, "one process tries each variant, a late one may try once more"


def test_a_later_job_tries_again_after_a_failure(fake_compiler):
    fake_compiler("exit 1")
    with pytest.raises(compiler.Unavailable):
        compiler.build()
    fake_compiler()
    assert compiler.build()


def test_the_allocators_part_is_left_out_where_it_does_not_compile(fake_compiler, monkeypatch):
    monkeypatch.setattr(compiler, "find_cuda_include", lambda: "/some/cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    fake_compiler('case "$*" in *SHARDLEDGER_ALLOCATOR*) echo "fatal error: cuda"; exit 1;; esac')
    assert compiler.build()
    assert "-lc10_cuda" in fake_compiler.calls()[0]
    assert "-lc10_cuda" not in fake_compiler.calls()[-1]


def test_another_torch_or_compiler_is_another_key(fake_compiler, monkeypatch):
    first = compiler.build()
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    second = compiler.build()
    monkeypatch.setattr(torch.version, "cuda", "9.9")
    assert len({first, second, compiler.build()}) == 3


def test_the_cache_is_private(fake_compiler):
    directory = os.path.dirname(compiler.build())
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    assert os.stat(directory).st_uid == os.geteuid()


def test_a_cache_that_others_can_write_is_refused(fake_compiler):
    directory = os.path.dirname(compiler.build())
    os.chmod(directory, 0o777)
    with pytest.raises(compiler.Unavailable, match="only this user can write"):
        compiler.build()


def test_a_cache_that_is_a_link_is_refused(fake_compiler, tmp_path):
    directory = os.path.dirname(compiler.build())
    os.rename(directory, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", directory)
    with pytest.raises(compiler.Unavailable, match="only this user can write"):
        compiler.build()


def test_without_a_compiler_the_reason_names_what_was_looked_for(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(compiler.Unavailable, match=r"CXX, c\+\+, g\+\+, clang\+\+"):
        compiler.find_compiler()


def test_the_compiler_is_not_run_under_the_plugin(monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/x/libshardledger.so")
    monkeypatch.setenv("LD_PRELOAD", "/x/y.so")
    shown = compiler._run([sys.executable, "-c", "import os; print(sorted(os.environ))"], 30).stdout
    assert "INJECTION" not in shown and "PRELOAD" not in shown


@pytest.mark.parametrize("cuda", [True, False])
def test_the_bridge_compiles_cleanly_with_and_without_cuda(tmp_path, cuda):
    include = compiler.find_cuda_include() if cuda else None
    if cuda and (include is None or torch.version.cuda is None):
        pytest.skip("no CUDA headers, or a torch without CUDA")
    path = str(tmp_path / "bridge.so")
    command = compiler._command(compiler.BRIDGE, compiler.find_compiler(), include, "c++17", path)
    command[command.index("-w")] = "-Wall"
    command[command.index("-O2")] = "-O0"  # half the time; what optimizing would find more, the library's own build does not say either
    command[1:1] = ["-Wextra", "-Werror", "-Wno-unused-parameter"]
    done = compiler._run(command, 600)
    assert done.returncode == 0, done.stdout
    library = types.SimpleNamespace(**dict(bind("torch_bridge.cpp", ctypes.PyDLL(path), ctypes.CDLL(path))))
    assert library.slb_has_allocator() == int(cuda)
    event = ctypes.cast(ctypes.CFUNCTYPE(None)(lambda: None), ctypes.c_void_p)
    if not cuda:
        assert library.slb_start_allocator(event, event) == -1
        assert library.slb_error() == b"built without the CUDA headers"
        assert library.slb_restore(event, event, event) == -1
        assert library.slb_allocator_stats(event, event) == -1
        assert library.slb_observe_refusals(event, event, event) == -1
    elif not torch.cuda.is_available():
        assert library.slb_start_allocator(event, event) == 1, "an allocator that is not initialised is asked again later"
        assert library.slb_restore(event, event, event) == 0, "it holds nothing"
        assert library.slb_allocator_stats(event, event) == 0, "no device, no bytes"
        assert library.slb_observe_refusals(event, event, event) == 0


def test_a_job_with_the_bridge_records_ranges_of_record_function(start_job):
    (log,) = start_job("job_plain.py", ranks=1)().check().logs()
    assert log.info()["fidelity"] == "bridge"
    check_ranges(log)


def test_a_job_without_a_compiler_says_so_once_and_records_the_ranges_all_the_same(start_job):
    job = start_job("job_plain.py", ranks=1, CXX="/nowhere/c++")().check()
    assert job.output[0].err == ("shardledger: no torch bridge, so PyTorch's allocations are read at step ends only: "
                                 "no C++ compiler (/nowhere/c++ not found)\n")
    (log,) = job.logs()
    assert log.info()["fidelity"] == "history"
    states = {event["source"]: (event["state"], event["reason"]) for event in log.of("source_state")}
    assert states["torch_bridge"] == ("failed", "no C++ compiler (/nowhere/c++ not found)")
    check_ranges(log)


def check_ranges(log):
    names = [event["name"] for event in log.of("range_push") if event["category"] == KIND["record_function"]]
    assert names.count("batch é") == 2
    assert names.count("Optimizer.step#AdamW.step") == 0, "torch's range of an optimizer's step has its closure inside"
    assert [event["name"] for event in log.of("range_push") if event["category"] == KIND["optimizer_step"]] == 2 * ["AdamW"]
    assert len(log.of("range_push")) == len(log.of("range_pop"))
    users = [event["name"] for event in log.of("range_push") if event["category"] == KIND["user"]]
    assert users == ["decorated", "user's", "user's"]
    assert [event["name"] for event in log.of("range_mark")] == ["ready"]


def test_python_off_only_turns_the_automatic_attaching_off(start_job):
    job = start_job("job_plain.py", ranks=1, SHARDLEDGER_PYTHON="off")().check()  # which attaches itself
    assert job.output[0].out.split() == ["attached", "True"]
    assert job.output[0].err == ""


def test_without_the_plugin_nothing_is_installed(start_job):
    job = start_job("job_plain.py", ranks=1, plugin=False)().check()
    assert job.output[0].out.split() == ["not", "attached", "False"]

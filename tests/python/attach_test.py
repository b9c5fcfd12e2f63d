"""When the companion installs itself, whatever state `import torch` is in; and the allocator's late start."""

import itertools
import os
import subprocess
import sys
import threading
import types

import pytest
import torch

import shardledger
from conftest import PLUGIN, read_log
from shardledger._companion import native

attach_module = sys.modules["shardledger._companion.attach"]


@pytest.fixture
def installs(monkeypatch):
    """Counts installations in place of doing them, with a plugin that is there."""
    done = []
    monkeypatch.setattr(attach_module, "_install", lambda: done.append(True))
    monkeypatch.setattr(native, "_loaded", True)
    monkeypatch.setattr(native, "plugin", object())
    return done


def test_with_torch_imported_it_installs_at_once(installs):
    assert shardledger.attach()
    assert installs == [True]


def test_in_the_middle_of_an_import_it_waits_for_the_end(installs, monkeypatch):
    importing = types.SimpleNamespace(__spec__=types.SimpleNamespace(_initializing=True))
    monkeypatch.setitem(sys.modules, "torch", importing)
    assert shardledger.attach()
    assert installs == []
    thread = next(t for t in threading.enumerate() if t.name == "shardledger")
    importing.__spec__._initializing = False
    thread.join(timeout=60)
    assert installs == [True]


def test_an_import_that_takes_minutes_is_waited_for(installs, monkeypatch):
    importing = types.SimpleNamespace(__spec__=types.SimpleNamespace(_initializing=True))
    monkeypatch.setitem(sys.modules, "torch", importing)
    now, looks = itertools.count(step=60), threading.Semaphore(0)
    clock = types.SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: looks.release())
    monkeypatch.setattr(attach_module, "time", clock)
    shardledger.attach()
    thread = next(t for t in threading.enumerate() if t.name == "shardledger")
    assert all(looks.acquire(timeout=60) for _ in range(5))
    importing.__spec__._initializing = False
    thread.join(timeout=60)
    assert installs == [True]


def test_an_import_that_fails_is_waited_for_no_longer(installs, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__spec__=types.SimpleNamespace(_initializing=True)))
    shardledger.attach()
    thread = next(t for t in threading.enumerate() if t.name == "shardledger")
    monkeypatch.delitem(sys.modules, "torch")
    thread.join(timeout=60)
    assert installs == [] and not thread.is_alive()


BEFORE_TORCH = """
import sys
import shardledger
from shardledger._companion import native
native._loaded, native.plugin = True, object()
assert shardledger.attach() and shardledger.attach()
assert "shardledger._companion.install" not in sys.modules
import importlib.util
assert importlib.util.find_spec("torch").loader.get_filename("torch").endswith("__init__.py")  # only asks if it is there
import torch
assert "shardledger._companion.install" in sys.modules
from shardledger._companion import imports
assert "torch" not in imports._waiting and all("." in name for name in imports._waiting), "parts of libraries are waited for"
assert not type(torch.__loader__).__module__.startswith("shardledger")
assert not type(torch.__spec__.loader).__module__.startswith("shardledger")
import importlib.resources
assert importlib.resources.files("torch").joinpath("version.py").is_file()
"""


def test_before_torch_it_installs_with_the_import_and_leaves_no_trace_in_it(monkeypatch):
    monkeypatch.setenv("SHARDLEDGER_TORCH", "off")
    monkeypatch.setenv("PYTHONPATH", sys.path[0] if "lib/python" in sys.path[0] else "")
    code = f"import sys; sys.path[:0] = {sys.path!r}\n" + BEFORE_TORCH
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 0, done.stderr


# As CUDA does it; where NVTX has another tool, that keeps the ranges.
RANGES_BEFORE_CUDA = """
import ctypes
import os
import time
import shardledger
from shardledger._companion import guard
with shardledger.range("before CUDA"):
    pass
assert not shardledger.attach()
ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
for _ in range(20_000):  # the interpreter calls it on the main thread, soon
    if any(type(finder).__module__ == "shardledger._companion.imports" for finder in sys.meta_path):
        break
    time.sleep(0.001)
else:
    raise AssertionError("nobody waits for torch")
if "NVTX_INJECTION64_PATH" not in os.environ:
    import torch
    assert guard.on
    torch.nn.Linear(2, 2)(torch.ones(1, 2))
"""


@pytest.mark.parametrize("nvtx", [None, "/nonexistent/libother_tool.so"])
def test_ranges_before_cuda_do_not_keep_it_from_attaching(monkeypatch, tmp_path, nvtx):
    for name, value in {"CUDA_INJECTION64_PATH": PLUGIN, "NVTX_INJECTION64_PATH": nvtx, "SHARDLEDGER_TORCH": "off",
                        "SHARDLEDGER_CUPTI": "off", "SHARDLEDGER_DIR": str(tmp_path)}.items():
        if value:
            monkeypatch.setenv(name, value)
    code = f"import sys; sys.path[:0] = {sys.path!r}\n" + RANGES_BEFORE_CUDA
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    if nvtx is None:
        (log,) = (read_log(entry.path) for entry in os.scandir(tmp_path))
        assert [event["name"] for event in log.of("range_push")] == ["Linear"]


# Under Nsight Compute, which leaves no room in CUDA: NCCL's call in a training, another library's here.
BY_NVTX = """
import ctypes
import sys
import time
ctypes.CDLL(sys.argv[1]).slr_attached()
for _ in range(20_000):  # the interpreter calls it on the main thread, soon
    if "shardledger" in sys.modules and sys.modules["shardledger"].attach():
        break
    time.sleep(0.001)
import torch
torch.nn.Linear(2, 2)(torch.ones(1, 2))
"""


@pytest.mark.parametrize("by", [None, "nvtx"])
def test_a_first_nvtx_call_attaches_where_cuda_can_not(tmp_path, by):
    environment = dict(os.environ, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_TORCH="off", SHARDLEDGER_CUPTI="off",
                       SHARDLEDGER_DIR=str(tmp_path / "log"), **({"SHARDLEDGER_ATTACH": by} if by else {}))
    code = BY_NVTX if by else BY_NVTX.replace("20_000", "200")
    done = subprocess.run([sys.executable, "-c", code, os.path.join(os.path.dirname(PLUGIN), native.RANGES)], env=environment,
                          stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    if not by:
        assert not (tmp_path / "log").exists()
        return
    (log,) = (read_log(entry.path) for entry in os.scandir(tmp_path / "log"))
    assert [event["name"] for event in log.of("range_push")] == ["Linear"]


def test_cuda_is_not_asked_for_before_the_job_uses_it(monkeypatch):
    from shardledger._companion import facts

    def spoil():
        raise AssertionError("workers that are forked after this could not use CUDA")

    monkeypatch.setattr(torch.cuda, "is_available", spoil)
    facts.ranks()


@pytest.mark.parametrize("installed, working, told", [("/home/me/pytorch/torch", "/home/me", "pytorch/torch"), ("/opt/torch", "/home/me", "/opt/torch")])
def test_where_pytorch_is_imported_from_is_told_as_call_stacks_spell_it(monkeypatch, installed, working, told):
    from shardledger._companion import facts

    found = {}
    monkeypatch.setattr(native, "info", lambda key, value: found.update({key.decode(): value.decode()}))
    monkeypatch.setattr(torch, "__file__", installed + "/__init__.py")
    monkeypatch.setattr(os, "getcwd", lambda: working)
    facts.process()
    assert found["torch_directory"] == told and found["torch_version"] == torch.__version__


def test_it_never_raises(monkeypatch):
    def fail():
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(native, "load", fail)
    monkeypatch.setenv("SHARDLEDGER_LOG", "quiet")
    assert shardledger.attach() is False


class Bridge:
    """A bridge whose allocator is initialised after a number of calls."""

    def __init__(self, not_yet, existing, has_table):
        self.not_yet = not_yet
        self.existing = existing
        self.has_table = has_table
        self.started = self.asked_for_workspaces = 0

    def start_allocator(self, event, note):
        assert (event, note) == ("sl_allocator_event", "sl_allocator_note")
        if self.not_yet:
            self.not_yet -= 1
            return 1
        self.started += 1
        return 0

    def restore(self, sequence, restore, existing):
        assert self.started and (sequence, restore, existing) == (
            "sl_allocator_sequence", "sl_allocator_restore", "sl_allocator_existing")
        return self.existing

    def start_sites(self, frame, site, allocator_site, own_files):
        assert self.started and (frame, site, allocator_site) == ("sl_frame", "sl_site", "sl_allocator_site")
        return 0

    def start_uses(self, use, use_watch, device):
        assert (use, use_watch, device) == ("sl_use", "sl_use_watch", b"cuda")
        return 0

    def follow_sites(self, mode):
        return 0

    def observe_refusals(self, refused, finalizing, thread_state):
        return 0

    def tag_workspaces(self, tag, waits):
        assert tag == "sl_tag"
        self.asked_for_workspaces += 1
        return self.has_table

    def allocator_stats(self, sequence, stats):
        assert (sequence, stats) == ("sl_allocator_sequence", "sl_allocator_stats")
        return 0

    def error(self):
        return b"no luck"


@pytest.fixture
def allocator(companion, monkeypatch):
    bridge = sys.modules["shardledger._companion.allocations.bridge"]
    monkeypatch.setattr(bridge, "_allocator", None)
    monkeypatch.setattr(torch.cuda, "_queued_calls", [])
    monkeypatch.setattr(native, "address", lambda library, symbol: symbol)
    if torch.version.cuda is None:
        pytest.skip("a torch without CUDA")

    def make(not_yet, existing=0, has_table=0):
        monkeypatch.setattr(bridge, "_library", Bridge(not_yet, existing, has_table))
        return bridge

    return make


def test_the_allocator_starts_at_once_where_it_is_initialised(allocator):
    bridge = allocator(not_yet=0)
    bridge.start_allocator()
    assert bridge._library.started == 1


def test_else_torch_starts_it_and_the_lock_that_we_may_hold_is_not_taken(allocator):
    bridge = allocator(not_yet=1)
    with torch.cuda._initialization_lock:  # as in the middle of torch.cuda._lazy_init
        bridge.start_allocator()
        bridge._when_initialised()
        for call, _ in torch.cuda._queued_calls:
            call()
    assert bridge._library.started == 1


def test_it_is_started_once(allocator):
    bridge = allocator(not_yet=0)
    for _ in range(3):
        bridge.start_allocator()
    assert bridge._library.started == 1


@pytest.mark.parametrize("existing, how, attached", [
    (0, "bridge", []),
    (12, "bridge, from a snapshot of 12 blocks", [("info", "attached", "late")]),
    (-1, "bridge, without what was there before: no luck", []),
])
def test_what_the_allocator_held_before_is_restored_and_said(allocator, companion, existing, how, attached):
    allocator(not_yet=0, existing=existing).start_allocator()
    states = [call for call in companion.calls.named("source_state") if call[1] == "torch_allocator"]
    assert states == [("source_state", "torch_allocator", "on", how)]
    assert companion.calls.named("info") == attached


@pytest.mark.parametrize("has_table, said", [(1, [("info", "cublas_workspaces", "table")]), (0, []), (-1, [])])
def test_workspaces_are_asked_for_at_once_and_at_step_ends(allocator, companion, monkeypatch, has_table, said):
    bridge = allocator(not_yet=0, has_table=has_table)
    bridge.start_allocator()
    assert companion.calls.named("info") == said, "without a table, storage goes by their size"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    bridge.step_ended()
    assert bridge._library.asked_for_workspaces == 2


def test_step_ends_of_two_threads_do_not_meet_in_pytorchs_table(allocator, monkeypatch):
    bridge, entered = allocator(not_yet=0), []
    bridge.start_allocator()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)

    def tag_workspaces(tag, waits):
        entered.append(tag)
        if len(entered) == 1:
            other = threading.Thread(target=bridge.step_ended)
            other.start()
            other.join()

    monkeypatch.setattr(bridge._library, "tag_workspaces", tag_workspaces)
    bridge.step_ended()
    assert len(entered) == 1
    bridge.step_ended()
    assert len(entered) == 2

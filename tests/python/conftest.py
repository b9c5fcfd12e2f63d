"""What the tests of the companion share.

Two ways to see what it does: `companion`, which installs it in this process with natives that only note their calls
(fast, for rules), and `run_job`, which starts processes with the real plugin and reads their logs back (for the whole).
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import types

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("SHARDLEDGER_BUILD_DIR") or os.path.join(HERE, "..", "..", "build", "dev")
LIBRARIES = os.path.join(BUILD, "lib")
PLUGIN = os.path.join(LIBRARIES, "libshardledger.so")
DUMP = os.path.join(BUILD, "bin", "dump_events")

sys.path.insert(0, os.path.join(LIBRARIES, "python"))
sys.path.append(os.path.join(HERE, "..", "gpu"))  # for checks
for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
    os.environ.pop(name, None)

_NATIVES = ("push", "pop", "start", "end", "mark", "info", "source_state", "module", "parameter", "fsdp_unit", "optimizer", "tag", "allocator_event",
            "allocator_event_at", "allocator_told", "allocator_sequence", "allocator_restore", "allocator_existing", "allocator_stats", "refused_site",
            "frame", "site", "allocator_site", "allocator_note",
            "device_sample", "device_sample_if_due", "cupti_release", "cupti_reacquire")


DEFAULTS = {b"SHARDLEDGER_TORCH": "auto", b"SHARDLEDGER_MODULES": "fsdp", b"SHARDLEDGER_LOG": "info", b"SHARDLEDGER_STACKS": "auto"}


def pytest_configure(config):
    """A place for what is made once (checks/once.py), which pytest's workers inherit."""
    if "TESTS_SHARE" not in os.environ:
        os.environ["TESTS_SHARE"] = tempfile.mkdtemp(prefix="shardledger-tests-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop("TESTS_SHARE")))


class Calls(list):
    """Noted native calls: (name, *arguments), byte strings as text."""

    def note(self, name):
        def native(*arguments):
            plain = tuple(a.decode() if isinstance(a, bytes) else a for a in arguments)
            self.append((name,) + plain)
            return 0 if name.startswith("cupti") else len(self)

        return native

    def named(self, *names):
        return [call for call in self if call[0] in names]

    def ranges(self):
        """Pushes, pops, starts and ends, readable: "+forward blocks.0", "-", "start step step 0", "end"."""
        from shardledger.kinds import KIND

        words = {number: word for word, number in KIND.items()}
        text, started = [], {}
        for i, call in enumerate(self):
            if call[0] == "push":
                text.append(f"+{words[call[1]]} {call[2]}")
            elif call[0] == "pop":
                text.append("-")
            elif call[0] == "start":
                started[i + 1] = f"{words[call[1]]} {call[2]}"
                text.append("start " + started[i + 1])
            elif call[0] == "end":
                text.append("end " + started.get(call[1], "?"))
        return text


@pytest.fixture
def companion(monkeypatch):
    """The companion, installed in this process without bridge, with noted natives and as if just attached."""
    monkeypatch.setenv("SHARDLEDGER_TORCH", "off")
    import torch
    from shardledger import attach
    from shardledger._companion import guard, native
    from shardledger._companion.allocations import sites
    from shardledger._companion.hooks import cycle, forward, modules, optimizers, steps
    from shardledger._companion.tagging import moved, shards, tags, uncalled

    attach_module = sys.modules["shardledger._companion.attach"]
    calls = Calls()
    for name in _NATIVES:
        monkeypatch.setattr(native, name, calls.note(name))
    # The plugin reads the environment once; here each test has its own.
    monkeypatch.setattr(native, "option", lambda name: os.environ.get(name.decode(), DEFAULTS[name]).encode())
    monkeypatch.setattr(native, "_loaded", True)
    monkeypatch.setattr(native, "plugin", object())
    monkeypatch.setattr(tags, "DEVICES", {"cuda", "cpu"})
    if not attach_module._installed:
        assert attach()
    guard.on = True
    guard._said.clear()
    modules._known.clear()
    modules.ranged.clear()
    modules._next_id = 1
    optimizers._known.clear()
    optimizers._count = 0
    optimizers._thread.open.clear()
    shards._numbers.clear()
    shards._optimizers.clear()
    monkeypatch.setattr(shards, "_last", 0)
    for table in (cycle._made, cycle._members, cycle._stepped, cycle._stepped_in_backward, cycle._cleared):
        table.clear()
    monkeypatch.setattr(cycle, "_last", None)
    monkeypatch.setattr(cycle, "_beginner", None)
    monkeypatch.setattr(cycle, "_stepped_after", None)
    monkeypatch.setattr(cycle, "_is_new", False)
    monkeypatch.setattr(cycle, "_missed", 0)
    monkeypatch.setattr(steps, "_sites", {})
    monkeypatch.setattr(steps, "_climbs", None)
    monkeypatch.setattr(forward, "watchers", [])
    tags.held.clear()
    tags._named.clear()
    moved._models.clear()
    moved._optimizers.clear()
    for name, value in (("_library", None), ("_wanted", "none"), ("_mode", 0), ("_is_in_step", False), ("_is_sampled", False),
                        ("_users_history", False), ("_end", None), ("_differs", None), ("_next", sites._FIRST_STEPS), ("_rest", sites._REST)):
        monkeypatch.setattr(sites, name, value)
    monkeypatch.setattr(uncalled, "_steps", 2)
    monkeypatch.setattr(uncalled, "_looks", 0)
    monkeypatch.setattr(steps, "number", -1)
    for name in ("_range", "_zero_grad_begins"):
        monkeypatch.setattr(steps, name, None)
    for name in ("_manual", "_is_prepared", "_saw_forward", "_saw_backward", "_saw_step_in_backward", "_is_cleared"):
        monkeypatch.setattr(steps, name, False)
    calls.clear()
    torch.manual_seed(0)
    yield types.SimpleNamespace(calls=calls, guard=guard, native=native, forward=forward)
    assert not forward._thread.open, "a forward range was left open"
    guard.on = False


@pytest.fixture(params=["without the bridge", "with the bridge"])
def either_way(request, companion, monkeypatch):
    """The companion, with modules' calls seen by Python alone, and by functions of the bridge's."""
    if request.param == "without the bridge":
        yield companion
        return
    import torch
    from shardledger._companion.allocations import compiler
    from shardledger._companion.hooks import modules
    from shardledger._companion.signatures import bind

    forward, native = companion.forward, companion.native
    path = compiler.build()
    bridge = dict(bind("torch_bridge.cpp", ctypes.PyDLL(path), ctypes.CDLL(path)))
    u32, u64, text = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
    kept = (ctypes.PYFUNCTYPE(None, u32, text, u64)(lambda *arguments: native.push(*arguments) and None),
            ctypes.PYFUNCTYPE(None)(lambda: native.pop() and None),
            ctypes.PYFUNCTYPE(u64, u32, text, u64)(lambda *arguments: native.start(*arguments)),
            ctypes.PYFUNCTYPE(None, u64)(lambda id: native.end(id) and None))
    assert bridge["slb_start_calls"](*(ctypes.cast(function, ctypes.c_void_p) for function in kept)) == 0
    for name in native._BRIDGES_CALLS:
        monkeypatch.setattr(native, name, ctypes.cast(bridge["slb_python_function"](name.encode()), ctypes.py_object).value)
    enter, leave = forward.bridged()
    assert enter is native.enter
    monkeypatch.setattr(torch.nn.Module, "__call__", forward._ranged(torch.nn.Module.__call__.__wrapped__, enter, leave))
    yield companion
    modules.ranged.clear()


class Event(dict):
    """One event of a log: its fields, with numbers as int, and .type, .thread, .tid, .time."""


class Log(list):
    """The events of one process."""

    def of(self, *types):
        return [event for event in self if event.type in types]

    def info(self):
        return {event["key"]: event["value"] for event in self.of("info")}


def read_log(directory):
    text = subprocess.run([DUMP, directory], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    log = Log()
    for line in text.splitlines():
        kind, thread, tid, time, *fields = line.split("\t")
        event = Event(field.split("=", 1) for field in fields)
        for key, value in event.items():
            if value.isdigit() and key not in ("name", "value" if kind == "info" else ""):
                event[key] = int(value)
        event.type, event.thread, event.tid, event.time = kind, int(thread), int(tid), int(time)
        log.append(event)
    return log


class Job:
    def __init__(self, directory, processes):
        self.directory = directory
        self.processes = processes
        self.output = []
        for process in processes:
            out, err = process.communicate(timeout=600)
            self.output.append(types.SimpleNamespace(out=out, err=err, status=process.returncode))

    def check(self):
        for output in self.output:
            assert output.status == 0, output.err
        return self

    def logs(self):
        """Of the ranks, in order."""
        found = [read_log(entry.path) for entry in os.scandir(self.directory / "log")]
        return sorted(found, key=lambda log: int(log.info().get("rank", 0)))


sharded_models = []  # that a test with two_ranks makes


@pytest.fixture
def two_ranks():
    """This process as rank 0 of two, whose collectives move nothing."""
    import torch.distributed as dist

    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()
    for model in sharded_models:  # their hooks keep them alive, and other tests look for all models that hold something
        for part in model.modules():
            part._parameters.clear()
    sharded_models.clear()


@pytest.fixture(scope="session")
def start_job(tmp_path_factory):
    """start_job(script, *arguments, ranks=2, plugin=True, **environment) → a callable that waits and gives the Job."""

    def start(script, *arguments, ranks=2, plugin=True, **environment):
        directory = tmp_path_factory.mktemp("job")
        processes = []
        for rank in range(ranks):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1",
                       RENDEZVOUS=str(directory / "rendezvous"), PYTHONPATH=os.path.join(LIBRARIES, "python"),
                       SHARDLEDGER_DIR=str(directory / "log"), **environment)
            if plugin:
                env["NVTX_INJECTION64_PATH"] = PLUGIN
            processes.append(subprocess.Popen([sys.executable, os.path.join(HERE, script), *arguments], env=env,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"))
        return lambda: Job(directory, processes)

    return start


from report_pages import attacked, browser, driver, fleet, growing, long, reported  # noqa: E402, F401 once a session, for all of report_*

"""in_situ.py without a GPU: the clocks count, take their own time off, and hand everything on."""

import ctypes
import os
import platform
import time
import types
from pathlib import Path

import in_situ
import pytest

LIBRARY = Path(os.environ["SHARDLEDGER_BUILD_DIR"]) / "lib" / "libtimed_calls.so"
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="bench/timed_calls.c reads that processor's counter")
PUSH = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64)


@pytest.fixture
def native():
    return types.SimpleNamespace(address=lambda library, symbol: ctypes.cast(getattr(library, symbol), ctypes.c_void_p))


def test_a_call_reaches_the_real_function_and_is_timed(native):
    heard = []

    def push(kind, name, value):
        heard.append((kind, name, value))
        time.sleep(0.002)

    libraries = types.SimpleNamespace(slr_push=PUSH(push), slr_mark=PUSH(push))
    calls = in_situ.Calls(LIBRARY, native)
    calls.clear()
    timed = PUSH(native.address(libraries, "slr_push").value)
    for value in range(5):
        timed(3, b"name", value)
    assert heard == [(3, b"name", value) for value in range(5)]
    count, ns = calls.taken()["push"]
    assert count == 5 and ns >= 2e6
    assert calls.taken()["pop"] == (0, 0.0)
    assert native.address(libraries, "slr_mark").value == ctypes.cast(libraries.slr_mark, ctypes.c_void_p).value
    calls.clear()
    assert calls.taken()["push"] == (0, 0.0)


def test_the_table_adds_up_to_the_share_of_a_step():
    lines = in_situ.table({"allocator": (600, 100.0), "pop": (0, 0.0)}, {"backward._begin": (10, 2000.0)}, {}, 10, 2.6).splitlines()
    assert lines[1].split()[-3:] == ["60.0", "100", "6.0"]
    assert lines[-1].split()[-5:] == ["8.0,", "0.31%", "of", "2.6", "ms"]


def test_of_a_modules_call_what_the_companion_adds_is_told(monkeypatch):
    now = 0  # ns, by a clock that only these calls move

    def takes(seconds):
        nonlocal now
        now += round(1e9 * seconds)

    monkeypatch.setattr(in_situ.time, "perf_counter_ns", lambda: now)

    class Module:
        def call(self, *args):
            return self._call_impl(*args)

        def __call__(self, *args):
            takes(0.002)
            try:
                return self._call_impl(*args)
            finally:
                takes(0.004)

        __call__.__wrapped__ = call

        def _call_impl(self, inside=None):
            takes(0.001)
            return inside() if inside else "result"

    root, other = Module(), Module()
    modules = in_situ.Modules(Module, {id(root): "the root"})
    for modules.watched in (True, False, True, False):
        assert root(other) == "result"
    taken = modules.taken()
    assert {name: count for name, (count, _) in taken.items()} == {
        f"forward of {word}, {part}": 4 for word in ("the root", "any other module") for part in ("begin", "end")}
    for name, (_, ns) in taken.items():
        assert ns == (2e6 if name.endswith("begin") else 4e6)

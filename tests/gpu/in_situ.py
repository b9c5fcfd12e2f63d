"""What ShardLedger's events and hooks take in the middle of real training, added up over a step.

    shardledger run -- torchrun --nproc-per-node 2 in_situ.py [--steps 60]

bench/plugin_cost calls the plugin in a loop, with everything in the processor's caches; here the training lies between two
calls. Each function that the torch bridge calls, and each hook of the companion, gets a clock around it, whose own time is
taken off. What CUPTI costs is not in it: overhead.py measures that.
Rank 0 prints a table.
"""

import argparse
import ctypes
import os
import statistics
import sys
import time
from pathlib import Path

PLUGIN = Path(os.environ.get("CUDA_INJECTION64_PATH", "/nowhere"))
CALLS = ("allocator", "push", "pop", "start", "end", "nothing")  # of bench/timed_calls.c, in its order
SYMBOLS = {"sl_allocator_event": "allocator", "slr_push": "push", "slr_pop": "pop", "slr_start": "start", "slr_end": "end"}
WORDS = {"allocator": "allocator event", "push": "range of record_function, begin", "pop": "its end",
         "start": "range of a collective, begin", "end": "its end"}
WARM_UP = 10  # steps


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--library", type=Path, default=PLUGIN.parent / "libtimed_calls.so", help="bench/timed_calls.c, built")
    return p.parse_args()


class Calls:
    """The clocks around what the torch bridge calls. To be made before the companion hands the functions to it."""

    def __init__(self, path, native):
        self.library = ctypes.CDLL(str(path))
        self.library.timed_calls.restype = self.library.timed_ticks.restype = self.library.timed_now.restype = ctypes.c_uint64
        self.library.timed_set.argtypes = (ctypes.c_int, ctypes.c_void_p)
        original = native.address

        def address(library, symbol):
            real = original(library, symbol)
            if symbol not in SYMBOLS:
                return real
            self.library.timed_set(CALLS.index(SYMBOLS[symbol]), real)
            return original(self.library, f"timed_{SYMBOLS[symbol]}")

        native.address = address
        self.tick_ns = self._tick_ns()

    def _tick_ns(self):
        begin, ticks = time.monotonic_ns(), self.library.timed_now()
        time.sleep(0.2)
        return (time.monotonic_ns() - begin) / (self.library.timed_now() - ticks)

    def clear(self):
        self.library.timed_clear()
        for _ in range(10_000):
            self.library.timed_nothing()

    def taken(self):
        """{function: (calls, nanoseconds of one)}"""
        mean = {}
        for what, name in enumerate(CALLS):
            calls = self.library.timed_calls(what)
            mean[name] = calls, self.tick_ns * self.library.timed_ticks(what) / calls if calls else 0.0
        _, clock = mean.pop("nothing")
        return {name: (calls, max(ns - clock, 0.0)) for name, (calls, ns) in mean.items()}


class Hooks:
    """The clocks around the companion's hooks. To be made before it installs them. What they call is in their time."""

    def __init__(self):
        from shardledger import backward, forward, optimizers

        self.times = {}
        self.clock_ns = self._clock_ns()
        for owner, name in ((forward, "_enter"), (forward, "_leave"),
                            (backward, "_begin"), (backward, "_finish"), (optimizers, "_before_step"),
                            (optimizers, "_after_step"), (optimizers, "_before_zero_grad")):
            setattr(owner, name, self._timed(f"{owner.__name__.split('.')[-1]}.{name}", getattr(owner, name)))

    def _timed(self, name, function):
        times = self.times[name] = []

        def timed(*args):
            begin = time.perf_counter_ns()
            try:
                return function(*args)
            finally:
                times.append(time.perf_counter_ns() - begin)

        return timed

    def _clock_ns(self):
        nothing = self._timed("nothing", lambda: None)
        for _ in range(10_000):
            nothing()
        return statistics.median(self.times.pop("nothing"))

    def clear(self):
        for times in self.times.values():
            times.clear()

    def taken(self):
        """{hook: (calls, nanoseconds of one)}, without the slowest hundredth: other processes ran then."""
        kept = {name: sorted(times)[: len(times) - len(times) // 100] for name, times in self.times.items() if times}
        return {name: (len(self.times[name]), max(statistics.fmean(times) - self.clock_ns, 0.0)) for name, times in kept.items()}


def table(calls, hooks, steps, step_ms):
    rows = [(WORDS[name], *taken) for name, taken in calls.items()]
    rows += [(f"{name}, its ranges included", *taken) for name, taken in hooks.items()]
    lines = [f"{'':<44} {'a step':>8} {'ns each':>8} {'us a step':>10}"]
    for name, count, ns in rows:
        lines.append(f"{name:<44} {count / steps:8.1f} {ns:8.0f} {count / steps * ns / 1e3:10.1f}")
    total = sum(count / steps * ns for _, count, ns in rows) / 1e3
    lines.append(f"{'all of it':<44} {'':8} {'':8} {total:10.1f}, {total / 1e3 / step_ms:.2%} of {step_ms:.1f} ms")
    return "\n".join(lines)


def main():
    a = parse()
    if not PLUGIN.exists():
        raise SystemExit("in_situ.py: ShardLedger is not attached; start this with 'shardledger run --'")
    if not a.library.exists():
        raise SystemExit(f"in_situ.py: {a.library} is missing; build it: cmake --build build/release --target timed_calls")
    sys.path.append(str(PLUGIN.parent / "python"))
    from shardledger import native

    calls, hooks = Calls(a.library, native), Hooks()
    import torch
    from training import Training

    training = Training()
    for _ in range(WARM_UP + 1):
        training.step()
    calls.clear()
    hooks.clear()
    times = []
    for _ in range(a.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        training.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    if training.rank == 0:
        print(table(calls.taken(), hooks.taken(), a.steps, statistics.median(times)), flush=True)
    training.close()


if __name__ == "__main__":
    main()

"""What ShardLedger's events and hooks take in the middle of real training, added up over a step.

    shardledger run -- torchrun --nproc-per-node 1 in_situ.py [--steps 60]
    shardledger run -- torchrun --nproc-per-node 1 in_situ.py --cpu        a smaller model, without a GPU: no allocator events

bench/plugin_cost calls the plugin in a loop, with everything in the processor's caches; here the training lies between two
calls. Each function that the torch bridge calls, and each hook of the companion, gets a clock around it, whose own time is
taken off. Of modules' calls the time to the module's own code and back is taken, and in every second step that of torch's own
call, without the companion: what it adds is the difference. What CUPTI costs is not in it: overhead.py measures that.
Rank 0 prints a table.

It measures any version of ShardLedger: that of the `shardledger run` that starts it (--library names this tree's clocks).
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
SYMBOLS = {"sl_allocator_event": "allocator", "slr_push": "push", "slr_pop": "pop", "slr_start": "start", "slr_end": "end",
           "sl_range_push": "push", "sl_range_pop": "pop", "sl_range_start": "start", "sl_range_end": "end"}
WORDS = {"allocator": "allocator event", "push": "range of record_function, begin", "pop": "its end",
         "start": "range of a collective, begin", "end": "its end"}
WARM_UP = 10  # steps
ON_CPU = {"device": "cpu", "vocabulary": 1000, "width": 256, "sequence": 64}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--cpu", action="store_true", help="a smaller model on the CPU, where there is no GPU")
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
        from shardledger._companion.hooks import backward, optimizers

        self.times = {}
        self.clock_ns = self._clock_ns()
        for owner, name in ((backward, "_begin"), (backward, "_finish"), (optimizers, "_before_step"),
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
        return {name: (len(times), max(mean(times) - self.clock_ns, 0.0)) for name, times in self.times.items() if times}


class Modules:
    """The clocks around modules' calls: to the module's own code, and back from there. To be made once the companion is
    installed."""

    def __init__(self, module_class, words):
        """words: id(module) → what the table calls it."""
        self.watched = True  # this step has the companion's call, else torch's own
        self.times = {True: {}, False: {}}
        call, call_impl, marks, now = module_class.__call__, module_class._call_impl, [], time.perf_counter_ns

        def outer(module, *args, **kwargs):
            word = words.get(id(module), "any other module")
            inner_call = call if self.watched else call.__wrapped__
            marks.append(None)
            begin = now()
            try:
                return inner_call(module, *args, **kwargs)
            finally:
                end = now()
                left, entered = marks.pop()
                self.times[self.watched].setdefault(word, []).append((entered - begin, end - left))

        def inner(module, *args, **kwargs):
            entered = now()
            try:
                return call_impl(module, *args, **kwargs)
            finally:
                marks[-1] = now(), entered

        module_class.__call__, module_class._call_impl = outer, inner

    def clear(self):
        for times in self.times.values():
            times.clear()

    def taken(self):
        """{what: (calls, nanoseconds that the companion adds to one)}"""
        found = {}
        for word, ours in self.times[True].items():
            torchs = self.times[False][word]
            for part, name in enumerate(("begin", "end")):
                added = mean([times[part] for times in ours]) - mean([times[part] for times in torchs])
                found[f"forward of {word}, {name}"] = len(ours) + len(torchs), added
        return found


def mean(times):
    """Without the slowest hundredth: other processes ran then."""
    return statistics.fmean(sorted(times)[: len(times) - len(times) // 100])


def table(calls, hooks, forwards, steps, step_ms):
    rows = [(WORDS[name], *taken) for name, taken in calls.items()]
    rows += [(f"{name}, its ranges included", *taken) for name, taken in (forwards | hooks).items()]
    lines = [f"{'':<60} {'a step':>8} {'ns each':>8} {'us a step':>10}"]
    for name, count, ns in rows:
        lines.append(f"{name:<60} {count / steps:8.1f} {ns:8.0f} {count / steps * ns / 1e3:10.1f}")
    total = sum(count / steps * ns for _, count, ns in rows) / 1e3
    lines.append(f"{'all of it':<60} {'':8} {'':8} {total:10.1f}, {total / 1e3 / step_ms:.2%} of {step_ms:.1f} ms")
    return "\n".join(lines)


def main():
    a = parse()
    if not PLUGIN.exists():
        raise SystemExit("in_situ.py: ShardLedger is not attached; start this with 'shardledger run --'")
    if not a.library.exists():
        raise SystemExit(f"in_situ.py: {a.library} is missing; build it: cmake --build build/release --target timed_calls")
    sys.path.append(str(PLUGIN.parent / "python"))
    import shardledger
    from shardledger._companion import native

    calls, hooks = Calls(a.library, native), Hooks()
    shardledger.attach()  # on a CPU nobody else does
    import torch
    from training import Training

    training = Training(**(ON_CPU if a.cpu else {}))
    synchronize = (lambda: None) if a.cpu else torch.cuda.synchronize
    for _ in range(WARM_UP + 1):
        training.step()
    words = {id(training.model): "the root"} | {id(block): "an FSDP unit" for block in training.model.blocks}
    forwards = Modules(torch.nn.Module, words)
    training.step()
    for clocks in (calls, hooks, forwards):
        clocks.clear()
    times = []
    for step in range(a.steps):
        forwards.watched = step % 2 == 0
        synchronize()
        begin = time.perf_counter()
        training.step()
        synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    if training.rank == 0:
        print(table(calls.taken(), hooks.taken(), forwards.taken(), a.steps, statistics.median(times)), flush=True)
    training.close()


if __name__ == "__main__":
    main()

"""The other tools that tell where GPU memory goes, each as a context in which training steps are watched by it.

Used by overhead.py. A tool that leaves traces in its process comes in a later stage than one that does not: once
torch.profiler has run, it keeps its seat in CUPTI, so everything else is measured before it.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
from typing import Callable

import torch
from torch.profiler import ProfilerActivity, profile

HISTORY_ENTRIES = 200_000  # bounded: unbounded, the history's own growth would be part of the figure


@dataclasses.dataclass
class Peer:
    """A tool, by the name it has in the results."""

    name: str
    watch: Callable  # (training) → a context manager; what it yields is called before every step
    steps: int  # in a block
    stage: int  # stages are measured one after the other
    untimed: int = 1  # steps before those: whatever the switch itself costs
    pairs: int = 1  # in a round


def nothing():
    pass


class Ledger:
    """The copy of ShardLedger that is already loaded: attached all the time, at work in its blocks only.

    Paused means: nothing is recorded, the companion's wrappers return at once, and CUPTI has no subscriber and records no
    activity. What stays are the empty calls from NVTX, from torch's own callbacks and from the wrappers.
    """

    def __init__(self):
        from shardledger._companion import guard

        self.library, self.companion = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]), guard
        assert self.companion.on
        self.pause()
        self.leave_cupti()

    def pause(self):
        self.hooks_off()
        self.library.sl_pause()
        assert not self.library.sl_recording()

    def resume(self):
        self.library.sl_resume()
        assert self.library.sl_recording()
        self.hooks_on()

    def hooks_on(self):
        self.companion.on = True

    def hooks_off(self):
        self.companion.on = False

    def leave_cupti(self):
        assert self.library.sl_cupti_release() in (0, -errno.ENODEV)  # no device: SHARDLEDGER_CUPTI=off

    def take_cupti(self):
        assert self.library.sl_cupti_reacquire() in (0, -errno.ENODEV)

    @contextlib.contextmanager
    def watch(self, training):
        """Everything, as it is by default: device times in a sample of the steps."""
        self.take_cupti()
        self.resume()
        try:
            yield nothing
        finally:
            self.pause()
            self.leave_cupti()

    @contextlib.contextmanager
    def record(self, training):
        """All but CUPTI. The switch costs next to nothing, so it can be used at every step."""
        self.resume()
        try:
            yield nothing
        finally:
            self.pause()

    @contextlib.contextmanager
    def events(self, training):
        """Of that the events alone, of the allocator and of ranges that are not the companion's."""
        self.resume()
        self.hooks_off()
        try:
            yield nothing
        finally:
            self.pause()

    @contextlib.contextmanager
    def hooks(self, training):
        """And the companion's hooks alone: what they say is not recorded."""
        self.hooks_on()
        try:
            yield nothing
        finally:
            self.hooks_off()


@contextlib.contextmanager
def memory_history(training):
    torch.cuda.memory._record_memory_history(max_entries=HISTORY_ENTRIES)
    try:
        yield nothing
    finally:
        torch.cuda.memory._record_memory_history(None)


@contextlib.contextmanager
def emit_nvtx(training):
    with torch.autograd.profiler.emit_nvtx():
        yield nothing


@contextlib.contextmanager
def fsdp_mem_tracker(training):
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    with FSDPMemTracker(training.model, training.optimizer) as tracker:
        yield tracker.reset_mod_stats  # it takes one forward of the root between two resets


def torch_profiler(**options):
    @contextlib.contextmanager
    def watch(training):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, **options):
            yield nothing

    return watch


def shardledger(ledger, block):
    return [
        Peer("ShardLedger", ledger.watch, block, 0),
        Peer("ShardLedger without CUPTI", ledger.record, 1, 0, untimed=0, pairs=6),
    ]


def parts(ledger):
    """Of what it costs without CUPTI, the two that it is made of."""
    return [
        Peer("its events alone", ledger.events, 1, 0, untimed=0, pairs=3),
        Peer("its hooks alone", ledger.hooks, 1, 0, untimed=0, pairs=3),
    ]


def others(block):
    return [
        Peer("_record_memory_history", memory_history, block, 1),
        Peer("emit_nvtx", emit_nvtx, block, 1),
        Peer("FSDPMemTracker", fsdp_mem_tracker, 2, 1),
        Peer("torch.profiler profile_memory", torch_profiler(), 3, 2),
        Peer("torch.profiler memory timeline", torch_profiler(record_shapes=True, with_stack=True), 3, 2),
    ]

"""Jobs of tests/gpu/trackers under PyTorch's memory tracker and under ShardLedger's, on the CPU. job_trackers.py JOB …

An allocator is made up: whatever storage an operator returns is a block of 512 bytes or a multiple, in a segment of its own, until
the storage dies. The plugin, its log, and the command that reads it are the real ones. Prints one JSON object a job.
"""

import contextlib
import json
import os
import pathlib
import sys
import types
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu" / "trackers"))

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._tools.common_utils import get_untyped_storages
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary, weakref

import shardledger
from shardledger._companion import facts, native
from shardledger._companion.allocations import bridge
from shardledger._companion.tagging import tags

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
BLOCK = 512
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE = 1, 2, 3, 4, 5


class MadeUp(TorchDispatchMode):
    """Smaller storages than a block are left out: rounded up they would lie in each other."""

    def __init__(self):
        super().__init__()
        self.alive, self.allocated, self.highest, self.before = WeakIdKeyDictionary(), 0, 0, 0
        resize = torch.UntypedStorage.resize_

        def resize_(storage, size):
            self.gone(self.alive.pop(storage, None))
            resize(storage, size)
            self.made(storage)

        torch.UntypedStorage.resize_ = resize_

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind == torch.distributed.tensor.DTensor for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.seen, result)
        return result

    def seen(self, tensor):
        if not isinstance(tensor, FakeTensor):
            for storage in get_untyped_storages(tensor):
                self.made(storage)

    def made(self, storage):
        if storage in self.alive or storage.nbytes() < BLOCK:
            return
        block = types.SimpleNamespace(address=storage.data_ptr(), bytes=-(-storage.nbytes() // BLOCK) * BLOCK)
        assert block.bytes == storage.nbytes(), "sizes of these jobs are multiples of a block"
        block.reference = weakref.ref(storage, lambda _, block=block: self.gone(block))
        self.alive[storage] = block
        for action in (SEGMENT_ALLOC, ALLOC):
            native.allocator_event(0, action, block.address, block.bytes, 0, 0, 0)
        self.allocated += block.bytes
        self.highest = max(self.highest, self.allocated)

    def gone(self, block):
        if block is None or block.reference is None:
            return
        block.reference = None
        for action in (FREE_REQUESTED, FREE_COMPLETED, SEGMENT_FREE):
            native.allocator_event(0, action, block.address, block.bytes, 0, 0, 0)
        self.allocated -= block.bytes

    # As observe.Allocator:

    def begin(self):
        self.before = self.allocated
        return self

    def blocks(self):
        return {block.address: (block.bytes, block.bytes) for block in self.alive.values()}

    def now(self):
        return self.allocated - self.before

    def reset_peak(self):
        self.highest = self.allocated

    def peak(self):
        return self.highest - self.before


assert shardledger.attach()
tags.DEVICES.add("cpu")
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

allocator = MadeUp()
torch.cuda.is_initialized = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.memory_allocated = lambda device=None: allocator.allocated
facts.device = facts.ranks = bridge.step_ended = lambda: None
bridge.tag_workspaces_now = lambda: None
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=int(os.environ["WORLD_SIZE"]))

import tracker_compared as compare  # noqa: E402
from tracker_jobs import JOBS  # noqa: E402
from tracker_observed import observe  # noqa: E402
from trackers import both_trackers  # noqa: E402

compare_with, ours = both_trackers()


def many_steps(steps=30):
    """Under one tracker that is never reset; most of them repeat each other in the ledger."""
    tracker = shardledger.MemTracker()
    made = JOBS["plain"][1](CPU, width=256, rows=64)
    tracker.track_external(made.model, made.optimizer, made.inputs)
    allocator.begin().reset_peak()
    with tracker:
        for _ in range(steps):
            made.forward().backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
    peak, highest = tracker.get_tracker_snapshot("peak")[GPU]["Total"], allocator.peak()
    for inside in (False, True):  # three more steps, of which it does not know, and two again under it
        with tracker if inside else contextlib.nullcontext():
            for _ in range(2 if inside else 3):
                made.forward().backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
    states = tracker.memory_tracking[made.model].snapshots
    (repeated,), = tracker._reading[1]._db.execute("SELECT count(*) FROM period WHERE same_as IS NOT NULL")
    held = sum(t.untyped_storage().nbytes() for t in (*made.model.parameters(), *made.model.buffers(), made.inputs))
    print(json.dumps({"job": "many steps", "repeated": repeated, "calls": [len(calls) for calls in states.values()],
                      "peak": peak, "allocated_peak": highest + held}), flush=True)


for name in sys.argv[1:]:
    if name == "many steps":
        with allocator:
            bridge._allocator = "bridge"
            many_steps()
        continue
    kind, whole = JOBS[name]

    def make(device):
        return whole(device, **({"width": 256, "rows": 64} if kind == "module" else {}))

    with allocator, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        kept = torch.ones(3 * BLOCK)  # of nobody's
        bridge._allocator = "bridge"
        theirs = observe(make, kind, compare_with, CPU, allocator.begin())
        mine = observe(make, kind, ours, CPU, allocator.begin(), GPU)
    for told in (theirs.peak, *theirs.current.values(), *theirs.modules.values()):
        told.update((word, size - size % BLOCK) for word, size in told.items())  # the scalars, of which Adam has some
    rows = compare.compare(kind, mine, theirs)
    print(json.dumps({"job": name, "answered": mine.kind, "counts": {check: sum(row.check == check for row in rows) for check in compare.CHECKS},
                      "failed": [str(row) for row in rows if not row.passed], "members": [mine.members, theirs.members],
                      "backward": [{f"{fqn} {call}": snapshot["Total"] for (fqn, state, call), snapshot in one.modules.items()
                                    if state == "Peak Backward"} for one in (mine, theirs)],
                      "warned": [str(one.message) for one in warned if issubclass(one.category, RuntimeWarning)]}), flush=True)
    print("\n".join(compare.table(name, rows)), file=sys.stderr)

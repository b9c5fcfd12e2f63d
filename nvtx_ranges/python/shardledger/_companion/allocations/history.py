"""What stands in for the bridge where there is no compiler: PyTorch's own memory history, and ranges by Python.

Reduced fidelity: allocations reach the ledger at the end of their step, with the time of each but not its thread. So it
knows how much and how long, and in which phase where one thread alone was at work; and each history entry costs
microseconds. Call stacks are PyTorch's, in the time before the first step's end and in the steps that are followed; operators,
and what they use, are not known.
"""

import functools
import heapq
import time

import torch
from torch.autograd import profiler

from ...kinds import ACTION, ACTION_OTHER, BLOCK_PENDING, BLOCK_STATE, KIND
from .. import compiling, guard, native
from ..compiling import is_traced
from . import history_sites

_MAX_ENTRIES = 1_000_000
_RECORD_FUNCTION = KIND["record_function"]

if "_restored" not in globals():  # a reloaded module keeps them
    _restored = set()  # devices whose first entries are still to be skipped


def _record(**options):
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc" if history_sites.wanted() else None,
                                             stacks="python", max_entries=_MAX_ENTRIES, **options)


def _record_anew():
    try:
        _record(clear_history=True)
    except TypeError:  # older versions always clear
        _record()


def start():
    """Begins, and hands on what is there already; returns the number of its blocks."""
    _record_anew()
    return _restore(torch.cuda.memory._snapshot()["segments"])


def _restore(segments):
    by_device = {}
    for segment in segments:
        by_device.setdefault(segment["device"], []).append(segment)
    for device, found in by_device.items():
        _restored.add(device)
        native.allocator_restore(device, native.allocator_sequence(device), len(found),
                                 sum(len(segment["blocks"]) for segment in found))
        for segment in found:
            _existing(device, segment)
    return sum(len(segment["blocks"]) for segment in segments)


def _existing(device, segment):
    address = segment["address"]
    pool = segment.get("segment_pool_id") or (0, 0)
    for block in segment["blocks"]:
        native.allocator_existing(device, address, block["size"], block.get("requested_size", block["size"]),
                                  segment.get("stream", 0), pool[0], pool[1],
                                  BLOCK_STATE.get(block["state"], BLOCK_PENDING), address == segment["address"])
        address += block["size"]


def read():
    """Hands on what happened since the last call, in order: each device's own, and theirs by time."""
    until_ns = time.time_ns()
    history_sites.period_ended()
    snapshot = torch.cuda.memory._snapshot()
    _record_anew()
    traces = []
    for device, entries in enumerate(snapshot["device_traces"]):
        if device in _restored:
            _restored.remove(device)
            entries = _after_snapshot(entries)
        traces.append(_timed(device, entries))
    for _, at_ns, device, entry in heapq.merge(*traces, key=lambda found: found[0]):
        emit(device, entry, at_ns)
    native.allocator_told(until_ns)


def _timed(device, entries):
    """Each with the time that says where it comes among those of other devices, which never goes back; and its own."""
    latest_ns, timed = 0, []
    for entry in entries:
        at_ns = _at_ns(entry)
        latest_ns = max(latest_ns, at_ns)
        timed.append((latest_ns, at_ns, device, entry))
    return timed


def _at_ns(entry):
    """The middle of the microsecond in which it happened; 0 where PyTorch does not say."""
    microseconds = entry.get("time_us", 0)
    return microseconds * 1000 + 500 if microseconds > 0 else 0


def _after_snapshot(entries):
    """What came before the snapshot that _restore read is part of it."""
    for i, entry in enumerate(entries):
        if entry["action"] == "snapshot":
            return entries[i + 1:]
    return entries


def emit(device, entry, at_ns):
    action = ACTION.get(entry["action"], ACTION_OTHER)
    address = entry.get("device_free", 0) if entry["action"] == "oom" else entry.get("addr", 0)
    pool = entry.get("segment_pool_id") or (0, 0)
    if entry["action"] == "alloc" and entry.get("frames"):
        history_sites.tell(device, entry["frames"])
    if entry["action"] == "alloc" and entry.get("user_metadata"):
        native.allocator_note(device, entry["user_metadata"].encode("utf-8", "replace"))
    native.allocator_event_at(device, action, address, entry.get("size", 0), entry.get("stream", 0), pool[0], pool[1],
                              at_ns)


def wrap_record_function():
    enter, leave = profiler.record_function.__enter__, profiler.record_function.__exit__

    @functools.wraps(enter)
    def __enter__(self):
        # Of an optimizer's step the companion has a range of its own, without the closure.
        if guard.on and not is_traced() and not torch.compiler.is_compiling() and not self.name.startswith("Optimizer.step#"):
            self._shardledger_open = True
            native.push(_RECORD_FUNCTION, self.name.encode("utf-8", "replace"), 0)
        return enter(self)

    @functools.wraps(leave)
    def __exit__(self, *exception):
        try:
            return leave(self, *exception)
        finally:
            if getattr(self, "_shardledger_open", False):
                self._shardledger_open = False
                native.pop()

    profiler.record_function.__enter__ = compiling.skipped(__enter__)
    profiler.record_function.__exit__ = compiling.skipped(__exit__)

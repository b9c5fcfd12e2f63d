"""shardledger.metrics(): the figures of the running process, for whatever plots a job."""

import sys

from ...kinds import KIND
from .. import native
from . import follower

_GIB = 2**30

# Names that plots of PyTorch jobs have already → PyTorch's own figure. Bytes are in GiB and in per cent of the device.
_BYTES = {"max_active": "active_bytes.all.peak", "max_reserved": "reserved_bytes.all.peak"}
_COUNTS = ("num_alloc_retries", "num_ooms")

# Columns of `shardledger watch --json` → names. A column without a value has no figure.
_LEDGER_COUNTS = {"last_step": "step", "peak_step": "peak_step", "events_lost": "events_lost", "gaps": "gaps",
                  "steps_differed": "steps_differed"}
_LEDGER_BYTES = {"last_peak_allocated_bytes": "step_peak_allocated", "peak_allocated_bytes": "peak_allocated",
                 "device_bytes": "device_used"}

if "_capacities" not in globals():  # a reloaded module keeps them
    _capacities = {}  # device → its bytes


def metrics(wait=False):
    """See shardledger.metrics."""
    if not is_recorded():
        return {}
    return {**_of_pytorch(sys.modules["torch"]), **_of_ledger(follower.read() if wait else follower.latest())}


def is_recorded():
    """Whether GPU memory of this process is."""
    torch = sys.modules.get("torch")
    # Asking torch.cuda.is_available() would call CUDA, and so spoil it for workers that are forked later.
    if torch is None or not torch.cuda.is_initialized():
        return False
    native.load()
    native.find_plugin()
    return bool(native.recording())


def _of_pytorch(torch):
    """Read under the allocator's lock, as torch.cuda.memory_allocated is: nothing waits for the device."""
    device = torch.cuda.current_device()
    statistics = torch.cuda.memory_stats(device)
    if device not in _capacities:
        _capacities[device] = torch.cuda.get_device_properties(device).total_memory
    figures = {}
    for name, key in _BYTES.items():
        if key in statistics:
            figures[f"memory/{name}(GiB)"] = statistics[key] / _GIB
            figures[f"memory/{name}(%)"] = 100 * statistics[key] / _capacities[device]
    figures.update((f"memory/{name}", statistics[name]) for name in _COUNTS if name in statistics)
    return figures


def _of_ledger(look):
    """What `watch` said of this process at its last look; none yet: nothing."""
    if not look or not look["ranks"]:
        return {}
    (rank,) = look["ranks"]
    figures = {name: rank[column] for column, name in _LEDGER_COUNTS.items()}
    figures.update((f"{name}(GiB)", _gib(rank[column])) for column, name in _LEDGER_BYTES.items())
    figures["step_time(s)"] = None if rank["last_step_ns"] is None else rank["last_step_ns"] / 1e9
    figures["step_peak_phase"] = KIND.get(rank["last_peak_phase"])
    figures.update((f"step_peak/{row['category']}(GiB)", _gib(row["peak_bytes"])) for row in look["categories"])
    return {"shardledger/" + name: value for name, value in figures.items() if value is not None}


def _gib(count):
    return None if count is None else count / _GIB

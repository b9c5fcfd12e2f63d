"""ShardLedger's companion: tells the ledger about modules, steps, optimizers and tensors of a PyTorch job.

Of a recorded run, shardledger.open(path) asks the ledger. In a job the companion is attached by itself when the plugin is
(CUDA_INJECTION64_PATH=libshardledger.so). Importing it is only needed to say more than it can see, and does nothing
expensive; without the plugin every call is a no-op:

    import shardledger

    with shardledger.range("sampling"):
        rollout = sample(model)
    shardledger.tag(cache, "kv_cache")
    shardledger.step()            # only where a step is not one optimizer step
    writer.log(shardledger.metrics())
    with shardledger.FSDPMemTracker(model, optimizer) as tracker:  # PyTorch's, at no cost: docs/integrations.md
        train_step()
    tracker.display_snapshot("peak", units="MiB")

Importing this package imports neither torch nor pandas, and records nothing.
"""

from __future__ import annotations

import typing as _typing

from ._companion import guard as _guard
from ._companion.attach import attach
from ._companion.ranges import is_compiling as _is_compiling
from ._companion.ranges import mark, range
from ._companion.version import __version__

if _typing.TYPE_CHECKING:
    import os

    import torch

    from .ledger import Ledger
    from .trackers import FSDPMemTracker, MemTracker

__all__ = ["FSDPMemTracker", "MemTracker", "__version__", "attach", "mark", "metrics", "open", "range", "step", "tag"]


def __getattr__(name):
    """PyTorch's memory trackers, answered from the ledger. Not imported before they are asked for."""
    if name in ("FSDPMemTracker", "MemTracker"):
        from . import trackers

        return getattr(trackers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*(name for name in globals() if name.startswith("__") or not name.startswith("_")), *__all__})


def step() -> None:
    """Ends the running step and starts the next. From the first call on, steps begin and end only here.

    Inside of what torch.compile compiles it does nothing, as range, mark and tag do."""
    if not _is_compiling() and _guard.on:
        from ._companion.hooks import steps

        steps.manual_step()


def tag(tensor: torch.Tensor, category: str, name: str = "") -> None:
    """Says what the storage of a tensor is for: a category of ShardLedger, or a word of your own."""
    if not _is_compiling() and _guard.on:
        from ._companion.tagging import tags

        tags.tag_by_user(tensor, category, name)


def metrics(wait: bool = False) -> dict[str, float]:
    """Current figures of this process, {name: number}, for TensorBoard, Weights & Biases and the like; docs/integrations.md lists them.

    memory/… are PyTorch's, read now. shardledger/… are the ledger's of the last step that ended, as a process beside the job
    read them within the last seconds; the first call starts that, and has none of them. wait=True reads the log instead, and
    waits for it. Empty where nothing is recorded or CUDA was not used yet."""
    if _is_compiling():
        return {}
    from ._companion.answers import figures

    return figures.metrics(wait)


def open(path: str | os.PathLike[str]) -> Ledger:
    """A recorded run for reading: a run directory, whose ledger is made first where needed, or a .sqlite file."""
    from .ledger import Ledger

    return Ledger(path)

"""shardledger.MemTracker and FSDPMemTracker: PyTorch's memory trackers by name and method, answered from the ledger of this process.

tracker_base.py says how; here is in what they differ.
"""

from __future__ import annotations

import itertools
import math
import typing

from ._companion import guard
from ._companion.answers.tracker_answers import TrackerError
from ._companion.answers.tracker_base import Tracker

if typing.TYPE_CHECKING:
    import torch

__all__ = ["FSDPMemTracker", "MemTracker", "TrackerError"]

_ROUNDS_TO = 512  # bytes, of PyTorch's allocator

# Of FSDP2's units MemTracker has the states of any module.
_PLAIN_STATES = {
    "Before Pre-Forward": "Pre-Forward", "After Post-Forward": "Post-Forward", "Peak Forward": "Peak-Forward",
    "Before Pre-Backward": "Pre-Backward", "After Post-Backward": "Post-Backward", "Peak Backward": "Peak-Backward",
    "Pre-Forward AC": "Pre-Forward-AC", "Post-Forward AC": "Post-Forward-AC",
}
_AGAIN = ("Pre-Forward-AC", "Post-Forward-AC")


class MemTracker(Tracker):
    """torch.distributed._tools.mem_tracker.MemTracker, answered from the ledger of this process: real devices, the allocator's
    bytes, any number of steps, and no dispatch mode.

        tracker = shardledger.MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            train_step()
        tracker.display_snapshot("peak", units="MiB")

    The job is recorded by `shardledger run -- python …`. Without that, under FakeTensorMode and for a model on the CPU, PyTorch's
    class answers, which is said once; handed_over_to is that then. What differs from it: docs/integrations.md.
    """

    _pytorchs_name, _words, _named_word = "MemTracker", "tracker_word", "Other"

    def track_external(self, *external: torch.nn.Module | torch.optim.Optimizer | torch.Tensor) -> None:
        """Modules, optimizers and tensors that were made before the tracker was entered, also in lists and dicts. A tensor that is
        neither a module's nor an optimizer's counts as Other. Modules that are called and optimizers that step need not be
        named. Raises TypeError for anything else."""
        import torch
        from torch.utils._pytree import tree_flatten

        flat = [thing for thing in tree_flatten(external)[0] if thing is not None]
        for thing in flat:
            if not isinstance(thing, (torch.nn.Module, torch.optim.Optimizer, torch.Tensor)):
                raise TypeError(f"a {type(thing).__name__} can't be tracked: modules, optimizers and tensors can")
        self._give("track_external", flat)

    def _keys(self):
        from torch.distributed._tools.mem_tracker import _MemRefType

        return _MemRefType

    def _stats(self, name):
        from torch.distributed._tools.mem_tracker import _ModMemStats

        return _ModMemStats(name)

    def _states(self):
        from torch.distributed._tools.mem_tracker import _ModState

        return _ModState

    def _taken(self, taken, is_wrapper):
        """A wrapper is not run again, only what is in it."""
        plain = {_PLAIN_STATES.get(state, state): snapshots for state, snapshots in taken.items()}
        return {state: snapshots for state, snapshots in plain.items() if not (is_wrapper and state in _AGAIN)}

    def _watch(self, on):
        from ._companion.hooks import forward

        forward.watchers = [watcher for watcher in forward.watchers if watcher is not self] + [self] * on

    def called(self, number, args, kwargs, output):
        """The companion tells of a module's call. Not for users."""
        try:
            self._passing[number] = tuple(sum(map(_rounded_bytes, _storages(things))) for things in ((args, kwargs), output))
        except Exception as error:  # of tensors in name only, say: the call's bytes are not known then
            guard.say_once("tracker inputs", f"a module's inputs can't be measured ({guard.describe(error)})")

    def _fill(self, stats, module, number, answers):
        blocks = answers.blocks()
        stats.parameter_mem, stats.buffer_mem = (
            sum(blocks.get(storage.data_ptr(), _rounded_bytes(storage)) for storage in _storages(list(tensors)))
            for tensors in (module.parameters(), module.buffers()))
        stats.input_mem, stats.output_mem = self._passing.get(number, (0, 0))


def _storages(things):
    from ._companion.tagging import tags
    from ._companion.tensors import leaves

    return [storage for tensor in leaves(things) if (storage := tags.storage_of(tensor)) is not None]


def _rounded_bytes(storage):
    return math.ceil(storage.nbytes() / _ROUNDS_TO) * _ROUNDS_TO


class FSDPMemTracker(Tracker):
    """torch.distributed._tools.fsdp2_mem_tracker.FSDPMemTracker, answered from the ledger of this process: real devices, the
    allocator's bytes, any number of steps, and no dispatch mode.

    mod: a model of fully_shard, else AssertionError, as PyTorch's raises. optm: its optimizer.

        tracker = shardledger.FSDPMemTracker(model, optimizer)
        tracker.track_inputs((batch,))
        with tracker:
            train_step()
        tracker.display_modulewise_snapshots(depth=2, units="MiB")

    The job is recorded by `shardledger run -- torchrun …`; each rank answers for itself. Without that, under FakeTensorMode and on
    the CPU, PyTorch's class answers, which is said once; handed_over_to is that then. What differs: docs/integrations.md.
    """

    _pytorchs_name, _words, _named_word, _calls = "FSDPMemTracker", "fsdp_word", "Inputs", False

    def __init__(self, mod: torch.nn.Module, optm: torch.optim.Optimizer | None = None) -> None:
        from torch.distributed.fsdp import FSDPModule

        if not isinstance(mod, FSDPModule):
            raise AssertionError(f"FSDPMemTracker takes a model of fully_shard, and this is a {type(mod).__name__}")
        self._root, self._optimizer = mod, optm
        super().__init__()

    def _make_torchs(self):
        return self._torchs_class()(self._root, self._optimizer)

    def track_inputs(self, inputs: tuple) -> None:
        """The tensors in it, also in lists and dicts, count as Inputs. Those that the model is called with need not be named."""
        import torch
        from torch.utils._pytree import tree_flatten

        self._give("track_inputs", [thing for thing in tree_flatten(inputs)[0] if isinstance(thing, torch.Tensor)])

    def _hand_on(self, method, things):
        getattr(self.handed_over_to, method)(tuple(things))

    def track_external(self, *external: torch.nn.Module | torch.optim.Optimizer | torch.Tensor) -> None:
        """Does nothing, as PyTorch's: the tracker was given its model and optimizer."""

    @guard.guarded
    def _know(self):
        for given in (self._root, self._optimizer):
            if given is not None:
                self._know_one(given)
        super()._know()

    def _given_tensors(self):
        yield from itertools.chain(self._root.parameters(), self._root.buffers())

    def _runs_on_device(self):
        """Parameters may be offloaded to the host: where they are gathered counts."""
        from ._companion.hooks import modules
        from ._companion.tagging import tags

        units = [module for module in self._root.modules() if modules.is_fsdp2(module)]
        return any(parameter.device.type in tags.DEVICES for unit in units for parameter in modules.fsdp_parameters(unit))

    def _keys(self):
        from torch.distributed._tools.fsdp2_mem_tracker import _FSDPRefType

        return _FSDPRefType

    def _stats(self, name):
        from torch.distributed._tools.fsdp2_mem_tracker import _FSDPModMemStats

        return _FSDPModMemStats(name)

    def _states(self):
        from torch.distributed._tools.fsdp2_mem_tracker import _FSDPModState

        return _FSDPModState

    def _follows(self, module):
        from ._companion.hooks import modules

        # A unit all of whose parameters are those of units in it shards nothing.
        return modules.is_fsdp2(module) and bool(modules.fsdp_parameters(module)) and any(module is own for own in self._root.modules())

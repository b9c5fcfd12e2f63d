"""Models that the job has and never calls, such as a moving average of the weights: found once, and tagged.

A model that is called shows itself (forward.py). One that is not has no range, no hook and no optimizer, so it is looked
for among all objects, at the ends of the first two steps of each model that is trained, up to eight of them: copies are made
before a model's first step, or of what that gave. Only types are asked, because asking an object for its class may run its
own code.
"""

import gc

import torch

from .. import guard
from ..hooks import modules
from ..tensors import unseen
from . import moved, shards, tags

_STEPS = 2
_LOOKS_MAX = 8 * _STEPS  # a job that makes models all the time is not searched all the time

if "_steps" not in globals():  # a reloaded module goes on counting
    _steps = _STEPS  # at whose ends to look, from now on
    _looks = 0  # so far


@unseen
def model_called_first(root):
    global _steps
    try:
        trained = any(parameter.requires_grad for parameter in modules.parameters_of(root))
    except Exception:  # parameters in name only
        return
    if trained:
        _steps = _STEPS


def step_ended():
    global _steps, _looks
    if _steps == 0 or _looks == _LOOKS_MAX:
        return
    _steps -= 1
    _looks += 1
    tags.gathered()
    for holder in _outermost():
        try:
            for root in _unknown(holder):
                if modules.register(root):
                    shards.model(modules.members(root))
                    moved.model(root, only_new=True)
        except Exception as error:  # a model that can't be walked harms nobody but itself: what it holds has no owner
            guard.say(f"a {type(holder).__name__} that is never called can't be walked ({guard.describe(error)})")


def _outermost():
    """The modules that are in no other."""
    every = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    inner = {id(child) for module in every for child in _children(module)}
    return [module for module in every if id(module) not in inner]


def _children(module):
    try:
        return [child for _, child in modules.table(module, "_modules") if child is not None]
    except Exception:  # it can't be read, so nothing is known to be in it
        return []


def _unknown(module):
    """The module itself where it has tensors on a device of the ledger; where a part of it is known, the parts that are not."""
    parts = [part for _, part, _, _ in modules.walk(module)]
    if not any(modules.find(part) is not None for part in parts):
        tensors = modules.tensors_of(module, "_parameters", "_buffers")
        return [module] if any(tags.is_on_device(tensor) for tensor in tensors) else []
    if modules.find(module) is not None:
        return []
    return [root for child in _children(module) for root in _unknown(child)]

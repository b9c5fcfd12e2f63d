"""Models that the job has and never calls, such as a moving average of the weights: found once, and tagged.

A model that is called shows itself (forward.py). One that is not has no range, no hook and no optimizer, so it is looked
for among all objects, at the end of the first steps. Only types are asked, because asking an object for its class may run
its own code.
"""

import gc

import torch

from . import guard, modules, tags

_AFTER = (0, 1)  # steps: copies are made before the first one, or of what it gave


def step_ended(step):
    if step in _AFTER:
        tags.gathered()
        for root in find():
            try:
                modules.register(root)
                tags.model(root, only_new=True)
            except Exception as error:  # a model that can't be walked harms nobody but itself: what it holds has no owner
                guard.say(f"a {type(root).__name__} that is never called can't be walked ({type(error).__name__}: {error})")


def find():
    """The outermost modules with tensors on a device of the ledger, in which no module is known."""
    every = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module) and "_modules" in vars(thing)]
    inner = {id(child) for module in every for child in module._modules.values()}
    found = []
    for module in every:
        if id(module) not in inner:
            _collect(module, found)
    return found


def _collect(module, found):
    """The module itself, or, where a part of it is known, the parts that are not."""
    parts = list(module.modules())
    if not any(modules.find(part) is not None for part in parts):
        if any(tags.is_on_device(tensor) for part in parts for tensor in (*_tensors(part._parameters), *_tensors(part._buffers))):
            found.append(module)
    elif modules.find(module) is None:
        for child in module.children():
            _collect(child, found)


def _tensors(table):
    return (tensor for tensor in table.values() if tensor is not None)

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
    if step not in _AFTER:
        return
    tags.gathered()
    for holder in _outermost():
        try:
            for root in _unknown(holder):
                modules.register(root)
                tags.model(root, only_new=True)
        except Exception as error:  # a model that can't be walked harms nobody but itself: what it holds has no owner
            guard.say(f"a {type(holder).__name__} that is never called can't be walked ({type(error).__name__}: {error})")


def _outermost():
    """The modules that are in no other."""
    every = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module) and "_modules" in vars(thing)]
    inner = {id(child) for module in every for child in vars(module)["_modules"].values()}
    return [module for module in every if id(module) not in inner]


def _unknown(module):
    """The module itself where it has tensors on a device of the ledger; where a part of it is known, the parts that are not."""
    parts = list(module.modules())
    if not any(modules.find(part) is not None for part in parts):
        tensors = (tensor for part in parts for table in (part._parameters, part._buffers) for tensor in table.values())
        return [module] if any(tensor is not None and tags.is_on_device(tensor) for tensor in tensors) else []
    if modules.find(module) is not None:
        return []
    return [root for child in module.children() for root in _unknown(child)]

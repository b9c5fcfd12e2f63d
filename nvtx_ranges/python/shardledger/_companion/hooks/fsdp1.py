"""FSDP1's whole gradients: the flat gradient of a unit, from where autograd made it until it is reduced.

FSDP1 takes it off its parameter in the hook that runs when a unit's backward is over, so no look at parameters finds it
later. One wrapper around that hook, which FSDP1 looks up by its name whenever it sets hooks, tags it first.
"""

import functools
import sys

from .. import compiling, guard, imports
from ..compiling import is_traced
from ..tagging import tags
from ..tensors import unseen
from . import modules

_RUNTIME = "torch.distributed.fsdp._runtime_utils"
_HOOK = "_post_backward_hook"


def _tagged(hook):
    @functools.wraps(hook)
    def wrapper(state, handle, *args, **kwargs):
        if not is_traced() and guard.on:
            _tag_of(handle)
        return hook(state, handle, *args, **kwargs)

    wrapper._is_shardledgers = True
    return compiling.skipped(wrapper)


@compiling.hidden
@guard.guarded
@unseen
def _tag_of(handle):
    try:
        gradient = handle.flat_param.grad
        if gradient is None or not handle.uses_sharded_strategy:  # with NO_SHARD it is there to stay
            return
        known = modules.find(handle._fully_sharded_module)
    except AttributeError:  # private, so another version's names may differ
        return
    entry = known.entry if known is not None else None
    path = entry.path + "." if entry is not None and entry.path else ""
    tags.tag(gradient, "unsharded_grad", entry.nearest_selected().id if entry is not None else 0, path + "_flat_param")


def _wrap():
    module = sys.modules[_RUNTIME]
    hook = vars(module).get(_HOOK)
    if callable(hook) and hasattr(hook, "__code__") and not hasattr(hook, "_is_shardledgers"):
        setattr(module, _HOOK, _tagged(hook))


def install():
    if _RUNTIME in sys.modules:
        _wrap()
    else:
        imports.when_imported(_RUNTIME, _wrap)

"""Ranges of modules' forwards.

One wrapper around nn.Module.__call__ sees them, and no hook is on any module: torch.compile guards on the tables of hooks,
copies and scripts take them along, and a hook lies among others' while the wrapper is outside of all. A module that is
called from outside any other is a root: it is walked at its first call, and it and selected modules inside get ranges. The
other modules inside pay for the wrapper only, which is a few instructions of Python's.

Where there is a bridge, its enter and leave stand before those here, and answer what is the same at every call (torch_calls.h).

A module that is called from outside during backward is one that activation checkpointing runs again: `recompute`. One that
is called from outside without gradients is `eval`: always in evaluation mode, in training mode between steps.
"""

import functools
import sys
import threading

import torch

from ...kinds import KIND
from .. import compiling, facts, guard, native
from ..compiling import is_traced
from ..tagging import moved, shards, tags, uncalled
from . import backward, modules, steps

_FORWARD, _RECOMPUTE, _EVAL = KIND["forward"], KIND["recompute"], KIND["eval"]

_FRAMES_MAX = 16  # from a module's call up to the checkpointing around it
_INSIDE_WRAPPER = b"._checkpoint_wrapped_module"  # what a wrapper runs again shares its entry, but is not the wrapper

_is_compiling = torch.compiler.is_compiling
_is_tracing = torch._C._is_tracing
_backward_task = torch._C._current_graph_task_id
_set_callback = compiling.set_callback


class _Thread(threading.local):
    def __init__(self):
        self.open = []  # the modules.Known whose range is open on this thread
        self.arrival = None  # of the root's inputs


if "_thread" not in globals():  # a reloaded module keeps what is open
    _thread = _Thread()
    watchers = []  # memory trackers that are entered, and want to know what modules are called with


def _is_read():
    """Torch makes a graph of what the modules do: it is no training, and nothing of ours belongs into the graph."""
    return _is_compiling() or _is_tracing()


def _ranged(call, enter, leave):
    """nn.Module.__call__ with ranges around. Its frame takes the place of torch's own, so calls nest as deep as without."""
    is_known = call.__code__.co_names == ("_compiled_call_impl", "_call_impl")  # torch's, and nothing that it does not do here
    inner = _call_of_module if is_known else call.__get__

    @functools.wraps(call)
    def _wrapped_call_impl(self, *args, **kwargs):  # torch.compile knows this name
        if is_traced() or (known := enter(self)) is None:
            if is_known and self._compiled_call_impl is None:  # the way of most calls
                return self._call_impl(*args, **kwargs)
            return inner(self)(*args, **kwargs)
        output = None
        try:
            output = inner(self)(*args, **kwargs)
            return output
        finally:
            leave(self, known, args, kwargs, output)

    _wrapped_call_impl._is_shardledgers = True
    return compiling.skipped(_wrapped_call_impl)


@compiling.skipped
def _call_of_module(module):
    """What torch's own nn.Module.__call__ calls."""
    compiled = module._compiled_call_impl
    return module._call_impl if compiled is None else compiled


@compiling.skipped
def _enter(module):
    """Opens the module's range where it gets one, and returns what to leave."""
    if not guard.on or (_thread.open and id(module) not in modules.ranged):
        return None
    callback = _set_callback(None)
    try:
        # Inside of what is compiled there are no ranges, also where its graph is broken: they would depend on that.
        return None if callback is not None or _is_read() else _begin(module, _thread.open)
    except Exception as error:
        guard.disable(error)
        return None
    finally:
        _set_callback(callback)


def _begin(module, stack):
    recomputing = _backward_task() != -1
    known = modules.find(module)
    if known is None:
        if modules.attributes(module).get("_is_replica"):
            known = modules.original(module)
        elif not recomputing:
            known = _first_call(module)
    if known is None or known.entry is None:
        return None
    if not modules.takes_ranges(module):
        if not stack and torch.is_grad_enabled():
            steps.forward(module)
        return None
    if id(module) not in modules.ranged and known.module() is module:
        modules.give_ranges(module)
    if known in stack or (known.alias and stack and not recomputing):
        return None  # its range is open, or its wrapper's
    kind = _RECOMPUTE if recomputing else _FORWARD
    if not stack and not recomputing:
        is_training = modules.attributes(module).get("training", True)
        if torch.is_grad_enabled() or (is_training and _is_checkpointed()):
            steps.forward(module)
        elif not is_training or not steps.running():
            kind = _EVAL
        moved.called(module, steps.number)
        _thread.arrival = _Arrival.of(module)
    name = known.entry.name + _INSIDE_WRAPPER if known.alias and recomputing else known.entry.name
    native.push(kind, name, known.entry.id)
    stack.append(known)
    native.stack_is(stack)
    if not known.alias:
        native.settle(module, known, name, known.entry.id, known.entry.fsdp2)
    return known


def _is_checkpointed():
    """Reentrant checkpointing runs what will have gradients without them, as an autograd function."""
    frame, checkpointed = sys._getframe(1), getattr(sys.modules.get("torch.utils.checkpoint"), "CheckpointFunction", None)
    code = getattr(getattr(checkpointed, "forward", None), "__code__", None)
    for _ in range(_FRAMES_MAX):
        if frame is None or code is None:
            return False
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


class _Arrival:
    """The last pre-hook of a root that has any, for one call: sees what they, such as FSDP's, made of the inputs, and is
    gone before the forward begins."""

    def __init__(self, module):
        self.thread = threading.get_ident()
        self.inputs = None
        self.handle = torch.nn.Module.register_forward_pre_hook(module, self, with_kwargs=True)

    @classmethod
    def of(cls, module):
        attributes = modules.attributes(module)
        # A compiled call reads the table of hooks.
        return cls(module) if attributes.get("_forward_pre_hooks") and module._compiled_call_impl is None else None

    def __call__(self, module, args, kwargs):
        if threading.get_ident() == self.thread:
            self.handle.remove()
            self.inputs = args, kwargs


@compiling.hidden
def _leave(module, known, args, kwargs, output):
    try:
        stack = _thread.open
        if known not in stack:
            return
        native.unwind(_thread.open, known)
        arrival = None
        if not stack:
            arrival, _thread.arrival = _thread.arrival, None
            if arrival is not None:
                arrival.handle.remove()
        if guard.on and _backward_task() == -1:
            for watcher in watchers:
                watcher.called(known.entry.id, args, kwargs, output)
            if not stack:
                tags.inputs(known.entry, *(arrival.inputs if arrival is not None and arrival.inputs else (args, kwargs)))
                steps.part_ended()
            if output is not None and not known.entry.fsdp2 and torch.is_grad_enabled():
                backward.watch(known.entry, args, kwargs, output)
    except Exception as error:
        guard.disable(error)


def close_stale():
    """Closes what an interrupt in the companion itself left open on this thread. Called where no forward of this thread
    can be running."""
    if _thread.open:
        native.unwind(_thread.open, _thread.open[0])


def _first_call(root):
    """Gets to know a root and everything in it. None where torch calls what it has made while it compiles."""
    if compiling.is_compiling_graphs():
        return None
    if not modules.has_tensors(root):
        return modules.remember(root)
    facts.ranks()
    facts.device()
    if modules.register(root):
        shards.model(modules.members(root))
        moved.model(root)
        uncalled.model_called_first(root)
    return modules.find(root)


@guard.at_disable
def _close():
    modules.ranged.clear()
    while _thread.open:
        _thread.open.pop()
        native.pop()


def is_installed():
    return hasattr(torch.nn.Module.__call__, "_is_shardledgers")


def bridged():
    """_enter and _leave behind the bridge's own; as they are where there is none."""
    flag = "_is_compiling_flag"  # all that torch.compiler.is_compiling looks at outside of scripts
    if native.prepare is native.nothing or flag not in vars(torch.compiler):
        return _enter, _leave
    native.prepare(_enter, _leave, vars(guard), "on", vars(torch.compiler), flag, compiling.get_callback, _set_callback)
    return native.enter, native.leave


def install():
    torchs = torch.nn.Module.__call__
    torch.nn.Module.__call__ = _ranged(torchs, *bridged())
    compiling.stands_for_modules_call(torch.nn.Module.__call__, torchs)

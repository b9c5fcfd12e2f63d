"""Ranges of the backward pass: the whole of it on the calling thread, and one of each selected module.

FSDP2 units bring their own ranges (`FSDP::pre_backward (…)` and so on), so nothing is put on them. For other selected
modules, tensor hooks start a range when the first gradient of an output arrives and end it when the gradients of all
inputs have. Modules' backwards do not nest, therefore start/end ranges. The hooks hold no tensor.
"""

import functools
import sys
import weakref

import torch

from ...kinds import KIND
from .. import compiling, guard, native
from ..compiling import is_traced
from ..tensors import is_made, leaves, unseen
from . import steps

_BACKWARD = KIND["backward"]

_is_compiling = torch.compiler.is_compiling
_backward_task = torch._C._current_graph_task_id

if "_open" not in globals():  # a reloaded module keeps what is open
    _open = {}  # range ids of modules' backwards → None
    _waiting = weakref.WeakSet()  # the _Calls with hooks on tensors, where autograd may come to be compiled


def install():
    torch.autograd.backward = _around(torch.autograd.backward)
    torch.autograd.grad = _around(torch.autograd.grad)


def _around(original):
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        # A backward inside a backward (reentrant checkpointing) belongs to the outer one.
        if is_traced() or not guard.on or _backward_task() != -1 or _is_compiling():
            return original(*args, **kwargs)
        begun = _begin()
        try:
            return original(*args, **kwargs)
        finally:
            if begun:
                _finish()

    return compiling.skipped(wrapper)


@compiling.hidden
def _begin():
    try:
        if compiling.is_compiling_graphs():
            return False
        if compiling.compiles_autograd():
            _take_hooks_away()
        steps.backward()
        native.push(_BACKWARD, b"backward", 0)
        return True
    except Exception as error:
        guard.disable(error)
        return False


@compiling.hidden
def _finish():
    try:
        while _open:  # inputs without a gradient of their own: these modules' backwards end with the whole
            native.end(_open.popitem()[0])
        native.pop()
        steps.part_ended()
    except Exception as error:
        guard.disable(error)


def _take_hooks_away():
    """Compiled autograd makes a graph of the hooks that tensors have, and another one where there are others."""
    for call in list(_waiting):
        for handle in call.handles:
            handle.remove()
    _waiting.clear()


class _Call:
    """One forward call of a module, waiting for its backward."""

    __slots__ = ("entry", "handles", "inputs", "missing", "task", "range", "__weakref__")

    def __init__(self, entry):
        self.entry = entry
        self.handles = []
        self.inputs = self.missing = 0
        self.task = self.range = None

    @compiling.hidden
    @guard.guarded
    def output_arrived(self, grad):
        task = _backward_task()
        if task != self.task:  # the first of this backward
            self.task, self.missing = task, self.inputs
            self.range = native.start(_BACKWARD, self.entry.name, self.entry.id)
            _open[self.range] = None

    @compiling.hidden
    @guard.guarded
    def input_arrived(self, grad):
        self.missing -= 1
        if self.missing == 0 and self.range in _open:
            del _open[self.range]
            native.end(self.range)


def _differentiable(tree):
    return [leaf for leaf in leaves(tree) if is_made(leaf)]


@unseen
def watch(entry, args, kwargs, output):
    """After a forward of a selected module."""
    outputs = _differentiable(output)
    if not outputs:
        return
    call = _Call(entry)
    try:
        for tensor in outputs:
            call.handles.append(tensor.register_hook(call.output_arrived))
        for tensor in _differentiable((args, kwargs)):
            call.handles.append(tensor.register_hook(call.input_arrived))
            call.inputs += 1
    except Exception:  # tensors that take no hooks, as under torch.func; such a call has no range
        pass
    if "torch._dynamo" in sys.modules:
        _waiting.add(call)

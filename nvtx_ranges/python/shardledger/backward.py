"""Ranges of the backward pass: the whole of it on the calling thread, and one of each selected module.

FSDP2 units bring their own ranges (`FSDP::pre_backward (…)` and so on), so nothing is put on them. For other selected
modules, tensor hooks start a range when the first gradient of an output arrives and end it when the gradients of all
inputs have. Modules' backwards do not nest, therefore start/end ranges. The hooks hold no tensor.
"""

import functools

import torch

from . import guard, native, steps
from .kinds import KIND
from .tensors import leaves, unseen

_BACKWARD = KIND["backward"]

_is_compiling = torch.compiler.is_compiling
_backward_task = torch._C._current_graph_task_id
_open = {}  # range ids of modules' backwards → None


def install():
    torch.autograd.backward = _around(torch.autograd.backward)
    torch.autograd.grad = _around(torch.autograd.grad)


def _around(original):
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        # A backward inside a backward (reentrant checkpointing) belongs to the outer one.
        if _is_compiling() or not guard.on or _backward_task() != -1:
            return original(*args, **kwargs)
        begun = _begin()
        try:
            return original(*args, **kwargs)
        finally:
            if begun:
                _finish()

    return wrapper


def _begin():
    try:
        steps.backward()
        native.push(_BACKWARD, b"backward", 0)
        return True
    except Exception as error:
        guard.disable(error)
        return False


def _finish():
    try:
        while _open:  # inputs without a gradient of their own: these modules' backwards end with the whole
            native.end(_open.popitem()[0])
        native.pop()
        steps.part_ended()
    except Exception as error:
        guard.disable(error)


class _Call:
    """One forward call of a module, waiting for its backward."""

    __slots__ = ("entry", "inputs", "missing", "task", "range")

    def __init__(self, entry):
        self.entry = entry
        self.inputs = self.missing = 0
        self.task = self.range = None

    # Compiled autograd traces what hooks do: there they do nothing.
    @guard.guarded
    def output_arrived(self, grad):
        if _is_compiling():
            return
        task = _backward_task()
        if task != self.task:  # the first of this backward
            self.task, self.missing = task, self.inputs
            self.range = native.start(_BACKWARD, self.entry.name, self.entry.id)
            _open[self.range] = None

    @guard.guarded
    def input_arrived(self, grad):
        if _is_compiling():
            return
        self.missing -= 1
        if self.missing == 0 and self.range in _open:
            del _open[self.range]
            native.end(self.range)


def _differentiable(tree):
    return [leaf for leaf in leaves(tree) if leaf.grad_fn is not None]


@unseen
def watch(entry, args, kwargs, output):
    """After a forward of a selected module."""
    outputs = _differentiable(output)
    if not outputs:
        return
    call = _Call(entry)
    try:
        for tensor in outputs:
            tensor.register_hook(call.output_arrived)
        for tensor in _differentiable((args, kwargs)):
            tensor.register_hook(call.input_arrived)
            call.inputs += 1
    except RuntimeError:  # tensors that take no hooks, as under torch.func; such a call has no range
        pass

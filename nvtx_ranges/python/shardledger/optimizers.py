"""Optimizers: a range around each step, and tags of what the first steps make (optimizer state, gradients)."""

import functools
import threading
import weakref

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import forward, guard, native, steps, tags
from .kinds import KIND

_OPTIMIZER_STEP = KIND["optimizer_step"]
_TAGGED_STEPS = 3  # state and gradients have their addresses by then

_backward_task = torch._C._current_graph_task_id
_known = {}  # id(optimizer) → _Known
_count = 0


class _Known:
    __slots__ = ("optimizer", "number", "name", "steps", "state_tensors")


class _Thread(threading.local):
    def __init__(self):
        self.open = []  # the _Known that are stepping on this thread


_thread = _Thread()


def _find(optimizer):
    global _count
    known = _known.get(id(optimizer))
    if known is None or known.optimizer() is not optimizer:
        known = _known[id(optimizer)] = _Known()
        known.optimizer = weakref.ref(optimizer)
        _count += 1
        known.number = _count
        known.name = type(optimizer).__name__.encode()
        known.steps = known.state_tensors = 0
    return known


@guard.guarded
def _before_step(optimizer, args, kwargs):
    known = _find(optimizer)
    if known in _thread.open:
        _unwind(known)  # its last step raised
    if not _thread.open and _backward_task() == -1:
        forward.close_stale()
    if known.steps < _TAGGED_STEPS:
        tags.gradients(optimizer)
    native.push(_OPTIMIZER_STEP, known.name, known.number)
    _thread.open.append(known)


@guard.guarded
def _after_step(optimizer, args, kwargs):
    known = _find(optimizer)
    if known not in _thread.open:
        return
    _unwind(known)
    if known.steps < _TAGGED_STEPS:
        known.state_tensors = tags.optimizer_state(optimizer, known.state_tensors)
    known.steps += 1
    if not _thread.open:
        steps.optimizer_stepped(optimizer, in_backward=_backward_task() != -1)


def _unwind(known):
    stack = _thread.open
    while stack:
        native.pop()
        if stack.pop() is known:
            return


@guard.guarded
def _before_zero_grad(optimizer):
    if _backward_task() == -1 and not _thread.open:
        steps.zero_grad()


def install():
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    zero_grad = Optimizer.zero_grad

    @functools.wraps(zero_grad)
    def wrapper(self, *args, **kwargs):
        if not torch.compiler.is_compiling():
            _before_zero_grad(self)
        return zero_grad(self, *args, **kwargs)

    Optimizer.zero_grad = wrapper

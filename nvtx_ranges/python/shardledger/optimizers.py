"""Optimizers: a range around each step, and tags of what the first steps make (optimizer state, gradients)."""

import functools
import gc
import threading
import weakref

import torch
from torch.optim.optimizer import Optimizer

from . import compiling, forward, guard, native, steps, tags
from .compiling import is_traced
from .kinds import KIND

_OPTIMIZER_STEP = KIND["optimizer_step"]
_TAGGED_STEPS = 3  # state and gradients have their addresses by then

_backward_task = torch._C._current_graph_task_id


class _Known:
    __slots__ = ("optimizer", "number", "name", "steps", "cleared", "state_tensors")


class _Thread(threading.local):
    def __init__(self):
        self.open = []  # the _Known that are stepping on this thread


if "_known" not in globals():  # a reloaded module keeps what it knows
    _known = {}  # id(optimizer) → _Known
    _count = 0
    _thread = _Thread()


def _find(optimizer):
    global _count
    known = _known.get(id(optimizer))
    if known is None or known.optimizer() is not optimizer:
        known = _known[id(optimizer)] = _Known()
        known.optimizer = weakref.ref(optimizer)
        _count += 1
        known.number = _count
        known.name = type(optimizer).__name__.encode("utf-8", "replace")
        known.steps = known.cleared = known.state_tensors = 0
    return known


@compiling.hidden
@guard.guarded
def _before_step(optimizer, *_):
    known = _find(optimizer)
    if known in _thread.open:
        _unwind(known)  # its last step raised
    if not _thread.open and _backward_task() == -1:
        forward.close_stale()
    if known.steps < _TAGGED_STEPS:
        tags.gradients(optimizer)
    native.push(_OPTIMIZER_STEP, known.name, known.number)
    _thread.open.append(known)


@compiling.hidden
@guard.guarded
def _after_step(optimizer, *_):
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


@compiling.hidden
@guard.guarded
def _before_zero_grad(optimizer):
    if _backward_task() == -1 and not _thread.open:
        _tag_compiled(optimizer)
        steps.zero_grad()


def _tag_compiled(optimizer):
    """A compiled step runs none of torch's hooks; what it made is tagged before the next one."""
    known = _find(optimizer)
    if known.steps == 0 and known.cleared <= _TAGGED_STEPS:
        known.cleared += 1
        tags.gradients(optimizer)
        known.state_tensors = tags.optimizer_state(optimizer, known.state_tensors)


def _ranged(step):
    """An optimizer's step with a range around."""

    @functools.wraps(step)
    def wrapper(self, *args, **kwargs):
        if is_traced():
            return step(self, *args, **kwargs)
        _before_step(self)
        result = step(self, *args, **kwargs)
        _after_step(self)
        return result

    return compiling.skipped(wrapper)


def _wrap_steps():
    """Inside torch's own wrapper, which each class gets with its first optimizer, and not by hooks: dynamo reads their
    tables. An optimizer with a step of its own, from a learning-rate schedule, has taken its class's along."""
    torchs = Optimizer.profile_hook_step
    Optimizer.profile_hook_step = staticmethod(lambda step: torchs(_ranged(step)))
    for kind in _subclasses(Optimizer):
        step = vars(kind).get("step")
        if getattr(step, "hooked", False):
            # What dynamo has read already is left as it is: there the range is outside.
            kind.step = _ranged(step) if compiling.has_compiled() else torchs(_ranged(step.__wrapped__))
            kind.step.hooked = True
    for optimizer in gc.get_objects():
        if issubclass(type(optimizer), Optimizer) and "step" in vars(optimizer):
            optimizer.register_step_pre_hook(_before_step)
            optimizer.register_step_post_hook(_after_step)


def _subclasses(kind):
    for inner in kind.__subclasses__():
        yield inner
        yield from _subclasses(inner)


def install():
    _wrap_steps()
    zero_grad = Optimizer.zero_grad

    @functools.wraps(zero_grad)
    def wrapper(self, *args, **kwargs):
        _before_zero_grad(self)
        return zero_grad(self, *args, **kwargs)

    # As torch's own is: dynamo ends a graph where it meets one.
    Optimizer.zero_grad = torch._disable_dynamo(wrapper)

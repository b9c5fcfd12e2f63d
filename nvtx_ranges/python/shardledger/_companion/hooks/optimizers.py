"""Optimizers: a range around each step, and tags of what the first steps make (optimizer state, gradients)."""

import functools
import gc
import inspect
import threading
import weakref

import torch
from torch.optim.optimizer import Optimizer

from ...kinds import KIND
from .. import compiling, guard, native
from ..compiling import is_traced
from ..tagging import moved, shards, tags
from . import cycle, forward, steps

_OPTIMIZER_STEP = KIND["optimizer_step"]
_TAGGED_STEPS = 3  # state and gradients have their addresses by then

_backward_task = torch._C._current_graph_task_id


class _Known:
    __slots__ = ("optimizer", "number", "name", "steps", "cleared")


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
        known.steps = known.cleared = 0
    return known


@compiling.hidden
@guard.guarded
def _before_step(optimizer):
    known = _find(optimizer)
    if known in _thread.open:
        native.unwind(_thread.open, known)  # its last step raised
    if not _thread.open and _backward_task() == -1:
        forward.close_stale()
    if known.steps < _TAGGED_STEPS:
        tags.gradients(optimizer)
        shards.optimizer(optimizer, known.number)
    _open(known)


@compiling.hidden
@guard.guarded
def _after_step(optimizer, *_):
    known = _find(optimizer)
    if known not in _thread.open:
        return
    native.unwind(_thread.open, known)
    if known.steps < _TAGGED_STEPS:
        moved.made_state(optimizer)
    known.steps += 1
    if not _thread.open:
        steps.optimizer_stepped(optimizer, in_backward=_backward_task() != -1)


@compiling.hidden
@guard.guarded
def _step_raised(optimizer):
    known = _find(optimizer)
    if known in _thread.open:
        native.unwind(_thread.open, known)


def _open(known):
    native.push(_OPTIMIZER_STEP, known.name, known.number)
    _thread.open.append(known)


class _Closure:
    """An optimizer's closure for one step: forward and backward in it are not the optimizer's."""

    def __init__(self, optimizer, closure):
        functools.update_wrapper(self, closure)
        self._optimizer = optimizer
        self._closure = closure
        self._known = None  # while it runs
        self._runs = 0

    def __call__(self, *args, **kwargs):
        self._begins()
        try:
            return self._closure(*args, **kwargs)
        finally:
            self._ends()

    @compiling.hidden
    @guard.guarded
    def _begins(self):
        known = _find(self._optimizer)
        if _thread.open and _thread.open[-1] is known and self._known is None:
            native.unwind(_thread.open, known)
            self._known = known
            self._runs += 1
            steps.closure_begins(self._runs > 1)

    @compiling.hidden
    @guard.guarded
    def _ends(self):
        known, self._known = self._known, None
        if known is not None:
            steps.closure_ends(self._runs > 1)
            _open(known)


compiling.skipped(_Closure.__call__)


def _with_closure(optimizer, step, args, kwargs):
    """What a step is called with, its closure as one of ours."""
    if callable(kwargs.get("closure")):
        kwargs = {**kwargs, "closure": _Closure(optimizer, kwargs["closure"])}
    elif args and callable(args[0]) and _takes_closure(step):
        args = (_Closure(optimizer, args[0]), *args[1:])
    return args, kwargs


@functools.lru_cache(maxsize=None)
def _takes_closure(step):
    """As its first argument, which may be something else in an optimizer of the user's own."""
    try:
        return list(inspect.signature(step).parameters)[1:2] == ["closure"]
    except Exception:  # it does not say
        return False


def _before_own_step(optimizer, args, kwargs):
    """A hook, for a step that is the optimizer's own."""
    if is_traced() or not guard.on:
        return None
    _before_step(optimizer)
    inner, kwargs = _with_closure(optimizer, type(optimizer).step, args[1:], kwargs)
    return args[:1] + inner, kwargs


compiling.skipped(_before_own_step)


@compiling.hidden
@guard.guarded
def _before_zero_grad(optimizer):
    if _backward_task() == -1 and not _thread.open:
        cycle.made(optimizer)
        _tag_compiled(optimizer)
        steps.zero_grad(optimizer)


def _tag_compiled(optimizer):
    """A compiled step runs none of torch's hooks; what it made is tagged before the next one."""
    known = _find(optimizer)
    if known.steps == 0 and known.cleared <= _TAGGED_STEPS:
        known.cleared += 1
        tags.gradients(optimizer)
        moved.made_state(optimizer)


def _ranged(step):
    """An optimizer's step with a range around, but for its closure."""

    @functools.wraps(step)
    def wrapper(self, *args, **kwargs):
        if is_traced():
            return step(self, *args, **kwargs)
        _before_step(self)
        if (args or kwargs) and guard.on:
            args, kwargs = _with_closure(self, step, args, kwargs)
        try:
            result = step(self, *args, **kwargs)
        except BaseException:
            _step_raised(self)
            raise
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
        if not issubclass(type(optimizer), Optimizer):
            continue
        cycle.made(optimizer)
        if "step" in vars(optimizer):
            optimizer.register_step_pre_hook(_before_own_step)
            optimizer.register_step_post_hook(_after_step)


def _subclasses(kind):
    for inner in kind.__subclasses__():
        yield inner
        yield from _subclasses(inner)


def _note_new_ones():
    """Each optimizer calls this method when it is made and when it is unpickled."""
    patch = getattr(Optimizer, "_patch_step_function", None)  # private, so another version may lack it
    if patch is None:
        return

    @functools.wraps(patch)
    def wrapper(self):
        _made(self)
        return patch(self)

    Optimizer._patch_step_function = compiling.skipped(wrapper)


@compiling.hidden
@guard.guarded
def _made(optimizer):
    cycle.made(optimizer)


def install():
    _wrap_steps()
    _note_new_ones()
    zero_grad = Optimizer.zero_grad

    @functools.wraps(zero_grad)
    def wrapper(self, *args, **kwargs):
        _before_zero_grad(self)
        return zero_grad(self, *args, **kwargs)

    # As torch's own is: dynamo ends a graph where it meets one.
    Optimizer.zero_grad = torch._disable_dynamo(wrapper)

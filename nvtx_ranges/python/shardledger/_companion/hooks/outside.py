"""Ranges of what runs between steps: `load` and `save` of state dicts and their files, and transformers' `generate`.

One wrapper around each function; of calls within each other the outermost has the range. What another library brings is
wrapped when that is imported, and what it has no more is left out. torch.cuda.make_graphed_callables, which runs modules
forward and backward to record them, has no range, and what it runs is no step.
"""

import functools
import sys
import threading

import torch

from ...kinds import KIND
from .. import compiling, guard, imports, native
from ..compiling import is_traced
from . import steps

_LOAD, _SAVE, _GENERATE = KIND["load"], KIND["save"], KIND["generate"]
_TRIAL = None  # no range

_CHECKPOINT = "torch.distributed.checkpoint"
# (module, class in it or "", {function: kind}, modules that have it by the same name)
_FUNCTIONS = (
    ("torch.nn", "Module", {"load_state_dict": _LOAD, "state_dict": _SAVE}, ()),
    ("torch.optim", "Optimizer", {"load_state_dict": _LOAD}, ()),
    ("torch.serialization", "", {"load": _LOAD, "save": _SAVE}, ("torch",)),
    (_CHECKPOINT + ".state_dict_loader", "", {"load": _LOAD}, (_CHECKPOINT,)),
    (_CHECKPOINT + ".state_dict_saver", "", {"save": _SAVE, "async_save": _SAVE}, (_CHECKPOINT,)),
    (_CHECKPOINT + ".state_dict", "",
     {"get_model_state_dict": _SAVE, "get_optimizer_state_dict": _SAVE, "get_state_dict": _SAVE,
      "set_model_state_dict": _LOAD, "set_optimizer_state_dict": _LOAD, "set_state_dict": _LOAD}, ()),
    ("torch.cuda.graphs", "", {"make_graphed_callables": _TRIAL}, ("torch.cuda",)),
    ("transformers.generation.utils", "GenerationMixin", {"generate": _GENERATE}, ()),
)


class _Thread(threading.local):
    is_open = False


if "_thread" not in globals():  # a reloaded module keeps what is open
    _thread = _Thread()


def _ranged(function, kind, is_method):
    name = f"torch.{function.__name__}" if function.__module__ == "torch.serialization" else function.__name__

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if is_traced() or _thread.is_open or not guard.on:
            return function(*args, **kwargs)
        _enter(kind, f"{type(args[0]).__name__}.{name}" if is_method and args else name)
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    wrapper._is_shardledgers = True
    return compiling.skipped(wrapper)


@compiling.hidden
@guard.guarded
def _enter(kind, name):
    if not torch.compiler.is_compiling():
        native.push(kind, name.encode("utf-8", "replace"), 0)
        _thread.is_open = True


@compiling.hidden
def _leave():
    if _thread.is_open:
        _thread.is_open = False
        _pop()


@guard.guarded
def _pop():
    native.pop()


@guard.at_disable
def _close():
    if _thread.is_open:
        _thread.is_open = False
        native.pop()


def _tries(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        steps.trial_begins()
        try:
            return function(*args, **kwargs)
        finally:
            steps.trial_ends()

    wrapper._is_shardledgers = True
    return compiling.skipped(wrapper)


def _wrap(holder, functions, also, is_method):
    for name, kind in functions.items():
        function = vars(holder).get(name)
        if callable(function) and hasattr(function, "__code__") and not hasattr(function, "_is_shardledgers"):
            wrapper = _tries(function) if kind is _TRIAL else _ranged(function, kind, is_method)
            setattr(holder, name, wrapper)
            for other in also:
                if getattr(sys.modules.get(other), name, None) is function:
                    setattr(sys.modules[other], name, wrapper)


def _wrap_in(module, kind, functions, also):
    try:
        holder = sys.modules[module]
        if kind:
            holder = getattr(holder, kind)
        _wrap(holder, functions, also, bool(kind))
    except Exception as error:  # another version of it
        guard.say_once(module, f"what {module} does has no ranges ({guard.describe(error)})")


def install():
    for module, kind, functions, also in _FUNCTIONS:
        wrap = functools.partial(_wrap_in, module, kind, functions, also)
        if module in sys.modules:
            wrap()
        else:
            imports.when_imported(module, wrap)

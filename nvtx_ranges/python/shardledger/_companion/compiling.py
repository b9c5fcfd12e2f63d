"""Keeps torch.compile from seeing the companion: a job compiles the same graphs, as often, with and without it.

Three things see code. What is traced is read as it stands, so whatever torch's own code reaches there asks is_traced()
first, which dynamo takes for a constant, and then does what torch alone would do. What runs while a thread compiles what
it meets (its callback is set) would be compiled as well: frames of ours are skipped, and while ours is at work there is no
callback. What guards look at, such as the tables of hooks of modules, is never touched.
"""

import functools
import sys

import torch
from torch._C._dynamo import eval_frame  # C alone: torch._dynamo is imported by jobs that compile, and not for us

is_traced = torch.compiler.is_dynamo_compiling
set_callback = eval_frame.set_eval_frame  # of this thread; gives the one that was there
get_callback = getattr(eval_frame, "get_eval_frame_callback", None)  # since torch 2.6


def skipped(function):
    """Runs function's own frame as it is; what it calls is compiled as if torch's code had called it."""
    if hasattr(eval_frame, "skip_code"):  # torch < 2.6
        eval_frame.skip_code(function.__code__)
    else:
        action = eval_frame._FrameAction
        eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT))
    return function


def hidden(function):
    """Nothing of function is compiled, nor of what it calls; where a call of it is traced, there is none."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if is_traced():
            return None
        callback = set_callback(None)
        try:
            return function(*args, **kwargs)
        finally:
            set_callback(callback)

    return skipped(wrapper)


def stands_for_modules_call(function, torchs):
    """Dynamo goes straight to a module's forward where its __call__ is the one that it found when it was imported."""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if getattr(module, "unpatched_nn_module_call", None) is torchs:
            module.unpatched_nn_module_call = function


def has_compiled():
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))


def is_compiling_graphs():
    """A compiler behind dynamo is at work: what it calls is no training."""
    return torch._guards.TracingContext.try_get() is not None


def compiles_autograd():
    """The next backward is traced, with every tensor hook that there is."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return getattr(module, "compiled_autograd_enabled", False) or getattr(
        module, "compiled_autograd_enabled_force_eager", False)

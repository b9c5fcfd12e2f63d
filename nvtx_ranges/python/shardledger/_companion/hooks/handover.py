"""torch.profiler and the plugin share one CUPTI seat: it is given up before a profile of CUDA starts, and retaken after."""

import functools
import weakref

import torch
from torch.autograd import profiler

from .. import compiling, guard, native

if "_holder" not in globals():  # a reloaded module keeps it
    _holder = None  # weak reference to the profile that CUPTI was given up for, until it ends


def _wants_cuda(profile):
    return torch.profiler.ProfilerActivity.CUDA in getattr(profile, "kineto_activities", ())


@compiling.hidden
@guard.guarded
def _before(profile):
    global _holder
    if _wants_cuda(profile) and (_holder is None or _holder() is None) and native.cupti_release() == 0:
        _holder = weakref.ref(profile)


@compiling.hidden
@guard.guarded
def _after(profile):
    """Others may end meanwhile: one of the CPU alone, one that was never enabled, one of another thread."""
    global _holder
    if _holder is not None and _holder() is profile:
        _holder = None
        native.cupti_reacquire()


def _begins(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        _before(self)
        try:
            return function(self, *args, **kwargs)
        except BaseException:  # it did not begin, so nothing will end it
            _after(self)
            raise

    return compiling.skipped(wrapper)


def _ends(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        try:
            return function(self, *args, **kwargs)
        finally:
            _after(self)

    return compiling.skipped(wrapper)


def install():
    # torch.profiler.profile prepares, starts and ends the same class, so these cover both profilers.
    kind = profiler.profile
    kind._prepare_trace, kind._start_trace = _begins(kind._prepare_trace), _begins(kind._start_trace)
    kind.__exit__ = _ends(kind.__exit__)

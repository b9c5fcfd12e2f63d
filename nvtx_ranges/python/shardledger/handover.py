"""torch.profiler and the plugin share one CUPTI seat: it is given up before a profile of CUDA starts, and retaken after."""

import functools

import torch
from torch.autograd import profiler

from . import guard, native

_released = False


def _wants_cuda(profile):
    return torch.profiler.ProfilerActivity.CUDA in getattr(profile, "kineto_activities", ())


@guard.guarded
def _before(profile):
    global _released
    if _wants_cuda(profile) and not _released:
        _released = native.cupti_release() == 0


@guard.guarded
def _after():
    global _released
    if _released:
        _released = False
        native.cupti_reacquire()


def install():
    # torch.profiler.profile prepares and ends the same class, so these two cover both profilers.
    prepare, leave = profiler.profile._prepare_trace, profiler.profile.__exit__

    @functools.wraps(prepare)
    def _prepare_trace(self, *args, **kwargs):
        _before(self)
        return prepare(self, *args, **kwargs)

    @functools.wraps(leave)
    def __exit__(self, *args, **kwargs):
        try:
            return leave(self, *args, **kwargs)
        finally:
            _after()

    profiler.profile._prepare_trace, profiler.profile.__exit__ = _prepare_trace, __exit__

"""Where training steps begin and end.

A step begins with the first zero_grad or forward with gradients, whichever the job does first in step 0: a job that
clears gradients after the optimizer's step does not begin its next step there. It ends with the step of the optimizer
that stepped first in step 0, or of the last one where several step in a row; when that optimizer is gone, or another one
steps twice without it, the other takes its place. What lies between (loading, evaluation, checkpoints) belongs to no
step. Optimizers that step inside backward end nothing: then a step ends where the next begins. So it does for a job that
has no optimizer of torch's: at a forward after backward, once its gradients have been set to None.
"""

import threading
import weakref

from . import bridge, compiling, guard, modules, native, tags, uncalled
from .kinds import KIND
from .tensors import unseen

_STEP = KIND["step"]

if "number" not in globals():  # a reloaded module goes on counting
    number = -1  # of the last step that began
    _range = None  # its NVTX range while it runs
    _manual = False
    _zero_grad_begins = None  # until step 0 shows which comes first
    _anchor = None  # weak reference to the optimizer that ends steps
    _others = []  # weak references to those that stepped since it did
    _saw_backward = _saw_step = _saw_step_in_backward = False
    _boundary = threading.Lock()


def running():
    return _range is not None


def part_ended():
    """A forward or backward is over: in the first steps, when libraries load their code and make their buffers, the
    device is looked at more often, so that it is known which part of the step made it grow."""
    if 0 <= number < 2:
        native.device_sample()


def _begin():
    """Of two threads that begin a step at once, one does."""
    global number, _range, _saw_backward, _saw_step, _saw_step_in_backward
    if _range is None and _boundary.acquire(blocking=False):
        try:
            if _range is None:
                number += 1
                _saw_backward = _saw_step = _saw_step_in_backward = False
                _range = native.start(_STEP, b"step %d" % number, number)
        finally:
            _boundary.release()


def _finish():
    if _range is not None and _boundary.acquire(blocking=False):
        try:
            if _range is not None:
                _end()
        finally:
            _boundary.release()


def _end():
    global _range
    bridge.step_ended()
    uncalled.step_ended()
    native.device_sample_if_due()
    native.end(_range)
    _range = None


def forward(root):
    """A root's forward with gradients begins."""
    global _zero_grad_begins
    if not _manual:
        if _range is not None and (_saw_step_in_backward or (_saw_backward and _is_over(root))):
            _finish()
        if _range is None:
            if _zero_grad_begins is None:
                _zero_grad_begins = False
            _begin()
    tags.again(root, number)


@unseen
def _is_over(root):
    """For jobs that update parameters themselves: gradients that are gone have been used."""
    if _anchor is not None or _saw_step:
        return False
    try:
        return all(p.grad is None for p in modules.parameters_of(root) if p.requires_grad)
    except Exception:  # parameters in name only, which tell nothing
        return False


def zero_grad():
    global _zero_grad_begins
    if _manual:
        return
    if _zero_grad_begins is None:
        _zero_grad_begins = _range is None
    if not _zero_grad_begins:
        return
    # Backward ran but no optimizer stepped: a gradient scaler skipped it. Gradients are cleared, so the step is over.
    if _range is not None and _saw_backward and not _saw_step:
        _finish()
    if _range is None:
        _begin()


def backward():
    global _saw_backward
    if not _manual and _range is None:
        _begin()  # a model that no hook sees, such as one compiled whole
    _saw_backward = True


def optimizer_stepped(optimizer, in_backward):
    global _saw_step, _saw_step_in_backward
    if _manual:
        return
    if in_backward:
        _saw_step_in_backward = True
        return
    _saw_step = True
    if _range is None:
        _end_with(optimizer)  # steps after the one that ended the step: from now on this one ends it
        return
    if _anchor is None or _anchor() is None or any(other() is optimizer for other in _others):
        _end_with(optimizer)
    if _anchor() is optimizer:
        _others.clear()
        _finish()
    else:
        _others.append(weakref.ref(optimizer))


def _end_with(optimizer):
    global _anchor
    _anchor = weakref.ref(optimizer)
    _others.clear()


@compiling.hidden
@guard.guarded
def manual_step():
    """The user's own boundary: ends the running step and begins the next; from now on only this does."""
    global _manual
    _manual = True
    _finish()
    _begin()


@guard.at_disable
def _close():
    global _range
    if _range is not None:
        native.end(_range)
        _range = None

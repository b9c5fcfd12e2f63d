"""Where training steps begin and end.

A step begins with the first zero_grad or forward with gradients, whichever the job does first in step 0: a job that
clears gradients after the optimizer's step does not begin its next step there. It ends with the step of its optimizer, of
several with that of the one that comes last in an iteration (cycle.py). What lies between (loading, evaluation,
checkpoints) belongs to no step. Optimizers that step inside backward end nothing: then a step ends where the next begins.
So it does for a job that has no optimizer of torch's: at a forward after backward, once its gradients have been set to
None.
"""

import sys
import threading

from ...kinds import KIND
from .. import compiling, guard, native
from ..allocations import bridge, sites
from ..rehearsing import rehearsal
from ..tagging import moved, uncalled
from ..layout import OWN_FILES
from ..tensors import unseen
from . import cycle, modules

_STEP = KIND["step"]
_SITE_FRAMES = 3  # of the user's that tell two calls apart
_NOT_THE_USERS = (OWN_FILES, "/torch/_dynamo/", "/torch/_compile", "/torch/optim/", "/torch/utils/")

if "number" not in globals():  # a reloaded module goes on counting
    number = -1  # of the last step that began
    _range = None  # its NVTX range while it runs
    _manual = False
    _zero_grad_begins = None  # until step 0 shows which comes first
    _sites = {}  # id(optimizer) → where zero_grad was called from before the first backward; None: not asked any more
    _is_prepared = False  # an optimizer stepped before the first step, to make its state
    _saw_forward = _saw_backward = _saw_step_in_backward = False
    _is_cleared = False  # gradients were, after backward and without an optimizer's step
    _clears = 0  # in the running step, such as these
    _climbs = None  # gradients are cleared once in mid-iteration, between two backwards; None: not known
    _versions = {}  # id(root) → of its parameters when its first forward of the running step began, while no optimizer ends steps
    _begun_at = None  # the zero_grad that began the running step
    _closures = _repeated_closures = 0  # that optimizers are running; for the second time and more in one step of theirs
    _trials = 0  # calls that run modules to see what they do
    _boundary = threading.Lock()


def running():
    return _range is not None


def part_ended():
    """A forward or backward is over: in the first steps, when libraries load their code and make their buffers, the
    device is looked at more often, so that it is known which part of the step made it grow."""
    if 0 <= number < 2:
        native.device_sample()
    if _range is None:
        bridge.tag_workspaces_now()


def _begin(by=None):
    """Of two threads that begin a step at once, one does. by: the optimizer whose zero_grad begins it."""
    global number, _range, _saw_forward, _saw_backward, _saw_step_in_backward, _is_cleared, _clears, _begun_at
    if _range is None and _boundary.acquire(blocking=False):
        try:
            if _range is None:
                rehearsal.step_begins(number + 1)
                moved.step_begins()
                number += 1
                _saw_forward = _saw_backward = _saw_step_in_backward = _is_cleared = False
                _clears = 0
                _versions.clear()
                _begun_at = _call_site() if by is not None else None
                cycle.step_began(by)
                sites.step_begins(number)
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
    allocated = bridge.step_ended()
    uncalled.step_ended()
    moved.step_ends()
    native.device_sample_if_due()
    native.end(_range)
    _range = None
    sites.step_ended(allocated)


def forward(root):
    """A root's forward with gradients begins."""
    global _zero_grad_begins, _saw_forward
    if not _manual and not _trials:
        if _range is not None and not _repeated_closures and (_saw_step_in_backward or _is_over(root)):
            _finish()
        if _range is None:
            if _zero_grad_begins is None:
                _zero_grad_begins = False
            _begin()
        _saw_forward = True
        if not cycle.ends_steps() and id(root) not in _versions and cycle.alive():
            _versions[id(root)] = _version_of(root)


@unseen
def _version_of(root):
    """Changes with each write to a parameter of its; None: not known."""
    try:
        return sum(p._version for p in modules.parameters_of(root))
    except Exception:  # parameters in name only
        return None


def _has_changed(root):
    """Parameters were written to in this step, and no optimizer has stepped."""
    before = _versions.get(id(root))
    return before is not None and _version_of(root) != before


def _is_given_up(root):
    """Cleared without a step is thrown away, as by a gradient scaler. But SAM climbs first: it writes to the parameters, clears,
    and goes through forward and backward again before it steps. A job that writes to them itself clears again."""
    global _climbs
    if _clears > 1:
        _climbs = False
    elif _climbs is None and not cycle.ends_steps():
        _climbs = _has_changed(root)
    return not _climbs


@unseen
def _is_over(root):
    """Where no optimizer's step ends the iteration."""
    if _is_cleared:
        return _is_given_up(root)
    return _saw_backward and not (_closures or cycle.ends_steps() or cycle.began_it()) and _has_used_gradients(root)


def _has_used_gradients(root):
    """For jobs that update parameters themselves: gradients that are gone have been used. Where there is an optimizer, they may have
    been put away for it instead, as DeepSpeed does while it accumulates: then parameters are as they were."""
    if cycle.alive() and not _has_changed(root):
        return False
    try:
        return (all(p.grad is None for p in modules.parameters_of(root) if p.requires_grad)
                and not any(True for _ in modules.whole_gradients()))
    except Exception:  # parameters in name only, which tell nothing
        return False


def zero_grad(optimizer):
    global _is_cleared, _clears
    if _manual or _repeated_closures or not _learns_from(optimizer):
        return
    if _range is not None:
        if not _zero_grad_begins:
            # Where no forward has begun the next step yet, that will end this one.
            _is_cleared = _saw_backward and not cycle.has_stepped() and cycle.is_last(optimizer)
            _clears += _is_cleared
        elif (_saw_backward or (_saw_forward and _begun_at and _begun_at == _call_site())) and cycle.begins_again(optimizer):
            # Backward ran but no optimizer stepped, as a gradient scaler skipped it, or not the last one. Or there was no backward,
            # as the loss was not finite: then only the line tells that began the step.
            cycle.ended_without_last()
            _finish()
    if _zero_grad_begins and _range is None and not cycle.clears_after(optimizer):
        _begin(by=optimizer)
    cycle.cleared(optimizer)


def _learns_from(optimizer):
    """Learns whether zero_grad begins steps; false for one that comes before them all.

    It does where it is the first thing that the job does. A job may clear once before its loop, and then at the end of each
    iteration: then it is called from another place the second time.
    """
    global _zero_grad_begins, _sites
    if _zero_grad_begins is None:
        if _is_prepared and number == -1:
            return False  # as after the step that made the optimizer's state
        _zero_grad_begins = _range is None
    if _zero_grad_begins and _sites is not None:
        site = _call_site()
        if number == -1 or (number == 0 and not _saw_backward and _range is not None):
            _sites.setdefault(id(optimizer), []).append(site)
        elif id(optimizer) in _sites:
            _zero_grad_begins = site in _sites[id(optimizer)]
            _sites = None
    return True


def _call_site():
    frame, site = sys._getframe(1), []
    while frame is not None and len(site) < _SITE_FRAMES:
        if not any(part in frame.f_code.co_filename for part in _NOT_THE_USERS):
            site.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return site


def backward():
    global _saw_backward, _is_cleared
    if _trials:
        return
    if not _manual and _range is None:
        _begin()  # a model that no hook sees, such as one compiled whole
    _saw_backward, _is_cleared = True, False
    cycle.backward()


def optimizer_stepped(optimizer, in_backward):
    global _saw_step_in_backward, _is_cleared, _is_prepared
    if _manual:
        return
    if in_backward:
        _saw_step_in_backward = True
        cycle.stepped_in_backward(optimizer)
        return
    _is_cleared = False
    if _range is None:
        _is_prepared = number == -1
        cycle.stepped_between(optimizer)
    elif cycle.stepped(optimizer):
        _finish()


def trial_begins():
    """Until it ends, forwards and backwards are no training: no step begins or ends with them."""
    global _trials
    _trials += 1


def trial_ends():
    global _trials
    _trials -= 1


def closure_begins(is_repeated):
    global _closures, _repeated_closures
    _closures += 1
    _repeated_closures += is_repeated


def closure_ends(is_repeated):
    global _closures, _repeated_closures
    _closures -= 1
    _repeated_closures -= is_repeated


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

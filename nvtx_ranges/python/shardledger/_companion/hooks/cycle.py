"""Which optimizer ends an iteration, where a job has several: one after the other, in turn as a GAN's, or now and then.

The last one that steps in an iteration ends it. In step 0 that is the one after which no optimizer is *expected* any more:
one that is alive, has not stepped, and trains parameters that those which did step do not have and that take part, as
they have a gradient or belong to a model that was called. So an optimizer that wraps another one, or was replaced, is not
waited for. From then on the same one ends steps, until it is gone, another one steps twice without it, or a new one
was made. An iteration without it (a gradient scaler skipped it, or it steps in every fifth only) ends where the optimizer
whose zero_grad began the step clears again.
"""

import weakref

from ..tagging import tags
from ..tensors import unseen

_MISSED_MAX = 8  # iterations in a row without the one that ends them, until another one takes its place

if "_made" not in globals():  # a reloaded module keeps what it knows
    _made = {}  # id(optimizer) → weak reference, of every one that there is
    _members = {}  # those that step in an iteration, as far as it is known
    _stepped = {}  # in the running step
    _stepped_in_backward = set()  # ids
    _cleared = {}  # in the running step
    _last = None  # weak reference to the one that ends iterations
    _beginner = None  # weak reference to the one whose zero_grad began the running step, or the last one
    _stepped_after = None  # weak reference to the one that stepped behind the last step
    _is_new = False  # one was made since it became known which one is the last
    _missed = 0
    _backward_since = False  # the last optimizer's step


def made(optimizer):
    global _is_new
    key = id(optimizer)
    known = _made.get(key)
    if known is None or known() is not optimizer:
        _made[key] = weakref.ref(optimizer, lambda gone: _forget(key, gone))
        _is_new = True


def _forget(key, gone):
    if _made.get(key) is gone:  # else the address already belongs to another one
        del _made[key]


def alive():
    return [optimizer for optimizer in (known() for known in list(_made.values())) if optimizer is not None]


def step_began(by=None):
    """by: the optimizer whose zero_grad began it."""
    global _beginner, _backward_since, _stepped_after
    _stepped_after = None
    _stepped.clear()
    _stepped_in_backward.clear()
    _cleared.clear()
    _backward_since = False
    _beginner = weakref.ref(by) if by is not None else None


def backward():
    global _backward_since
    _backward_since = True


def ends_steps():
    """Optimizers do, and not the forward that finds the gradients gone."""
    return _last is not None or bool(_stepped)


def began_it():
    """The running step began with an optimizer's zero_grad: so one steps in it."""
    return _beginner is not None


def has_stepped():
    return bool(_stepped)


def cleared(optimizer):
    _cleared[id(optimizer)] = weakref.ref(optimizer)


def stepped_in_backward(optimizer):
    if _last is None:
        _stepped_in_backward.add(id(optimizer))


def stepped_between(optimizer):
    """After the one that ended the step: from now on this one ends it."""
    global _stepped_after
    _stepped_after = weakref.ref(optimizer)
    _settle(optimizer)


def clears_after(optimizer):
    """Between steps its zero_grad belongs to its own step there, and begins none."""
    return (_stepped_after is not None and _stepped_after() is optimizer
            and _beginner is not None and _beginner() is not optimizer)


def stepped(optimizer):
    """One has stepped in the running step; whether the iteration ends with it."""
    global _backward_since
    _backward_since = False
    last = _last() if _last is not None else None
    is_repeated = _is_in(_stepped, optimizer)
    _stepped[id(optimizer)] = weakref.ref(optimizer)
    if last is None or _is_new:
        is_over = is_repeated or not is_any_expected()
    elif _is_in(_members, optimizer):
        is_over = optimizer is last or is_repeated
    else:  # it starts to take part: in a turn of its own, or beside the last one
        is_over = is_repeated or (_beginner is not None and _beginner() is optimizer and not _is_in(_cleared, last))
    if is_over:
        _settle(optimizer)
    return is_over


def begins_again(optimizer):
    """Whether this zero_grad in the running step, after a backward, is the next iteration's."""
    if _beginner is None:  # a forward began it
        return not _stepped
    if _beginner() is not optimizer:
        return False
    if _stepped and not _is_in(_stepped, optimizer):
        return False
    # All are cleared before each one's turn: then the others' turns come first.
    return not _stepped or _backward_since or all(_is_in(_stepped, other()) for other in _cleared.values())


def ended_without_last():
    global _missed
    _missed += 1
    if _stepped and (_last is None or _last() is None or _is_new or _missed >= _MISSED_MAX or not is_any_expected()):
        _settle(list(_stepped.values())[-1]())


def is_last(optimizer):
    """No other one comes after it in an iteration, as far as is known."""
    last = _last() if _last is not None else None
    return optimizer is last if last is not None and not _is_new else not is_any_expected(besides=optimizer)


def _settle(optimizer):
    global _last, _is_new, _missed
    if optimizer is None:
        return
    _last = weakref.ref(optimizer)
    _members.update(_stepped)
    _members[id(optimizer)] = _last
    for key in [key for key, member in _members.items() if member() is None]:
        del _members[key]
    _is_new = False
    _missed = 0


def _is_in(table, optimizer):
    known = table.get(id(optimizer))
    return known is not None and known() is optimizer


@unseen
def is_any_expected(besides=None):
    """Whether an optimizer is still to step in this iteration."""
    done, waiting = set(), []
    for optimizer in alive():
        if optimizer is besides or _is_in(_stepped, optimizer) or id(optimizer) in _stepped_in_backward:
            done.update(map(id, parameters_of(optimizer)))
        else:
            waiting.append(optimizer)
    return any(id(parameter) not in done and _takes_part(parameter)
               for optimizer in waiting for parameter in parameters_of(optimizer))


def parameters_of(optimizer):
    try:
        return [parameter for group in optimizer.param_groups for parameter in group["params"]]
    except Exception:  # one that keeps them another way, or is not made whole yet
        return []


def _takes_part(parameter):
    try:
        return parameter.requires_grad and (parameter.grad is not None or tags.is_named(parameter))
    except Exception:  # a parameter in name only
        return False

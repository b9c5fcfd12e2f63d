"""Finding the tensors in what modules are called with and return, and asking them without anybody noticing."""

import functools

import torch


def unseen(function):
    """What function asks of tensors is hidden from the user's torch function modes and tensor subclasses."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return wrapper


def leaves(tree):
    """The tensors in nested tuples, lists and dicts (also their subclasses, such as model outputs).

    torch's own pytree does more, at ten times the cost.
    """
    found = []
    _collect(tree, found, set())
    return found


def _collect(tree, found, inside):
    """inside: ids of the containers that this one is in, since one may hold itself."""
    try:
        if isinstance(tree, torch.Tensor):
            found.append(tree)
            return
        items = tree if isinstance(tree, (tuple, list)) else tree.values() if isinstance(tree, dict) else None
        if items is None or id(tree) in inside:
            return
        inside.add(id(tree))
        for item in items:
            _collect(item, found, inside)
        inside.remove(id(tree))
    except Exception:  # of a container of the user's own kind: it is passed over
        inside.discard(id(tree))


def is_made(tensor):
    """By an operation that autograd recorded."""
    try:
        return tensor.grad_fn is not None
    except Exception:  # a tensor in name only
        return False

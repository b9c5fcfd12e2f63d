"""Ranges and marks that the user names; they show in the ledger as kind `user`, and in Nsight Systems."""

import functools
import sys

from ..kinds import KIND
from . import native

_USER = KIND["user"]


def is_compiling():
    """Inside of what torch.compile traces there is nothing to name, and a call of ours would break its graph."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


class range:
    """`with shardledger.range("sampling"):` or `@shardledger.range("sampling")`."""

    def __init__(self, name: str) -> None:
        self.name = str(name).encode("utf-8", "replace")

    def __enter__(self):
        if not is_compiling():
            native.load()
            native.push(_USER, self.name, 0)
        return self

    def __exit__(self, *exception):
        if not is_compiling():
            native.pop()
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            if is_compiling():
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return inside


def mark(name: str) -> None:
    """One instant, for example `shardledger.mark("curriculum changed")`."""
    if is_compiling():
        return
    native.load()
    native.mark(_USER, str(name).encode("utf-8", "replace"), 0)

"""Ranges and marks that the user names; they show in the ledger as kind `user`, and in Nsight Systems."""

import functools

from . import native
from .kinds import KIND

_USER = KIND["user"]


class range:
    """`with shardledger.range("sampling"):` or `@shardledger.range("sampling")`."""

    def __init__(self, name):
        self.name = str(name).encode("utf-8", "replace")

    def __enter__(self):
        native.load()
        native.push(_USER, self.name, 0)
        return self

    def __exit__(self, *exception):
        native.pop()
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return inside


def mark(name):
    """One instant, for example `shardledger.mark("curriculum changed")`."""
    native.load()
    native.mark(_USER, str(name).encode("utf-8", "replace"), 0)

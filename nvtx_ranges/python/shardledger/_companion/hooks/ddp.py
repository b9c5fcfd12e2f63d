"""DistributedDataParallel's gradient buckets: a range around the two places where its C++ reducer allocates them.

It makes them when a model is wrapped, and again in the second forward, in the order in which gradients came.
"""

import functools

import torch

from ...kinds import KIND
from .. import compiling, guard, native
from ..compiling import is_traced

_RECORD_FUNCTION = KIND["record_function"]  # the ledger knows these ranges by name, as it does FSDP's


def _ranged(function, name):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if is_traced() or not guard.on or torch.compiler.is_compiling():
            return function(*args, **kwargs)
        native.push(_RECORD_FUNCTION, name, 0)
        try:
            return function(*args, **kwargs)
        finally:
            native.pop()

    return compiling.skipped(wrapper)


def install():
    kind = torch.nn.parallel.DistributedDataParallel
    for method in ("__init__", "_pre_forward"):
        function = getattr(kind, method, None)  # private, so another version may lack it
        if function is not None:
            setattr(kind, method, _ranged(function, f"DistributedDataParallel.{method}".encode()))

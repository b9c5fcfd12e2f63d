"""A device as large as the rehearsal says: PyTorch may reserve that much, less what is in use beside it.

Beside it are CUDA's context, which is there before, kernels as they are loaded, and libraries' own memory: so the limit is set
when CUDA is initialised, and lowered where a step begins. What other processes hold of the device counts as this one's.
"""

import traceback

import torch

from . import rehearsal

if "_share" not in globals():  # a reloaded module keeps what it set
    _share = None  # of the device, once it is limited
    _is_own = False  # the program has set one within it


def install():
    """As soon as CUDA is initialised."""
    if rehearsal.read_plan() is None or not rehearsal.plan.memory:
        return
    if torch.cuda.is_initialized():
        _set()
        return
    # torch.cuda._lazy_call without its lock, as in bridge.py.
    queue = getattr(torch.cuda, "_queued_calls", None)
    if isinstance(queue, list):
        queue.append((_set, traceback.format_stack()))


def _set(device=None):
    global _share
    device = torch.cuda.current_device() if device is None else device
    free, total = torch.cuda.mem_get_info(device)
    beside = total - free - torch.cuda.memory_reserved(device)
    share = min(1.0, (rehearsal.plan.memory - beside) / total)
    if share <= 0:
        rehearsal.refuse(f"what is in use of the device beside PyTorch's, {beside} bytes, is more than --device-memory")
    if _share is None and rehearsal.plan.memory > total:
        rehearsal.say(f"--device-memory is more than the device has, {total} bytes: what does not fit here may fit there")
    if _share is None or share < _share:
        _share = share
        torch._C._cuda_setMemoryFraction(share, device)


def adjust():
    """Where a step begins. A limit of the program's own, which is lower, is left alone."""
    if _share is not None and not _is_own:
        _set()


def within(fraction, device=None):
    """A fraction of the pretended device, as one of the real one."""
    global _is_own
    if _share is None:
        return fraction
    _is_own = fraction < 1
    return fraction * _share

"""A device as large as the rehearsal says: PyTorch may reserve that much, less what CUDA's context takes.

PyTorch counts what it reserves itself, so the context, which is there before, is taken off. Kernels that are loaded later and
libraries' own memory are not: the command adds them up afterwards, from the record.
"""

import traceback

import torch

from . import rehearsal

if "_share" not in globals():  # a reloaded module keeps what it set
    _share = None  # of the device, once it is limited


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


def _set():
    global _share
    if _share is not None:
        return
    device = torch.cuda.current_device()
    free, total = torch.cuda.mem_get_info(device)
    wanted = rehearsal.plan.memory - (total - free)
    if wanted <= 0:
        rehearsal.refuse(f"CUDA's context and what else is on the device take {total - free} bytes, more than --device-memory")
    if rehearsal.plan.memory > total:
        rehearsal.say(f"--device-memory is more than the device has, {total} bytes: what does not fit here may fit there")
    _share = min(1.0, wanted / total)
    torch._C._cuda_setMemoryFraction(_share, device)


def within(fraction, device=None):
    """A fraction of the pretended device, as one of the real one."""
    return fraction if _share is None else fraction * _share

"""What is alive when memory runs out gets its tags at the refused request, since the job may never reach a step's end.

Between steps' ends there is what the tags of their boundaries do not know: gradients, whole ones that wait to be reduced
too, state of an optimizer whose first step is half done, a model that was loaded a moment ago. PyTorch tells its observers of
a request that it refuses for good, after it has freed its cache, without a lock of its own and on the thread that asked; the
bridge calls us from there (torch_bridge.cpp says when it does not). Nothing here calls CUDA or allocates on a device.
"""

import _thread
import ctypes

import torch

from .. import guard, native
from ..allocations import sites
from ..hooks import cycle
from . import moved, tags

_UNLOCKED_SINCE = "2.2"  # versions before 2.1 called observers under the allocator's lock
_TAGGED_MAX = 32  # refused requests of a job that tries batch sizes

if "_count" not in globals():  # a reloaded module goes on counting
    _count = 0
    _callback = None  # ctypes' function, which lives as long as the process
    _is_tagging = False


def refused(device, size, tag_workspaces=None):
    """Records where the request came from, and tags. Never raises: it would end in PyTorch's allocator."""
    global _count, _is_tagging
    if _is_tagging or not guard.on or _count >= _TAGGED_MAX:
        return
    _is_tagging = True
    try:
        _count += 1
        sites.refused(device)
        moved.tag_all()
        for optimizer in cycle.alive():
            tags.gradients(optimizer)
            tags.optimizer_state(optimizer)
        tags.whole_gradients()
        if tag_workspaces is not None:
            tag_workspaces()
    except KeyboardInterrupt:  # the user's, which has to arrive where Python can hand it on
        _thread.interrupt_main()
    except BaseException as error:
        guard.say_once("refused", f"what was alive when memory ran out has not all of its tags ({guard.describe(error)})")
    finally:
        _is_tagging = False


def observe(library, tag_workspaces):
    """Has the bridge call refused() from now on. tag_workspaces: tags those of cuBLAS without waiting for anything."""
    global _callback
    if _callback is not None or torch.torch_version.TorchVersion(torch.__version__) < _UNLOCKED_SINCE:
        return
    python = ctypes.pythonapi
    is_finalizing = getattr(python, "Py_IsFinalizing", None) or getattr(python, "_Py_IsFinalizing")
    _callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64)(
        lambda device, size: refused(device, size, tag_workspaces))
    functions = (_callback, is_finalizing, python.PyGILState_GetThisThreadState)
    if library.observe_refusals(*(ctypes.cast(function, ctypes.c_void_p) for function in functions)) != 0:
        native.source_state(b"torch_refusals", b"failed", library.error())

"""Where in the code memory is asked for: when the bridge takes call stacks and operators (torch_sites.h says how).

Training repeats itself, so a sample of steps is enough: the first ones, and one after a step that ended with other memory than
the step before it, less and less often in a job whose steps all differ. Outside of steps stacks are always taken. A memory
history that the program records itself is left alone; nothing is known meanwhile.
"""

import ctypes
import functools
import sys
import threading

import torch

from .. import guard, native, options
from ..layout import OWN_FILES

_OFF, _STACKS, _OPERATORS, _BETWEEN = range(4)  # enum Mode of torch_sites.h
_FIRST_STEPS = 2
_REST = 10  # steps at least between two that are followed because of an unusual end; doubles each time
_RECORDERS = "_cuda_record_memory_history", "_cuda_record_memory_history_legacy"  # of torch._C

if "_library" not in globals():  # a reloaded module goes on
    _library = None  # the bridge, once it is ready
    _wanted = "none"
    _mode = _OFF
    _is_in_step = _is_sampled = _users_history = False
    _end = _differs = None  # allocated bytes of the last step's end; whether they were others than of the one before
    _next, _rest = _FIRST_STEPS, _REST  # no step before this one is followed because of an unusual end


def start(library):
    """The allocator's trace is on."""
    global _library, _wanted
    _wanted = options.stacks()
    if _wanted == "none" or _library is not None:
        return
    functions = [native.address(native.plugin, name) for name in ("sl_frame", "sl_site", "sl_allocator_site")]
    if library.start_sites(*functions, OWN_FILES.encode("utf-8", "replace")) != 0:
        native.source_state(b"torch_sites", b"failed", library.error())
        return
    uses = [native.address(native.plugin, name) for name in ("sl_use", "sl_use_watch")]
    if library.start_uses(*uses, b"cuda") != 0:
        native.source_state(b"torch_uses", b"failed", library.error())
    else:
        native.source_state(b"torch_uses", b"on", _wanted.encode())
    _library = library
    for name in _RECORDERS:
        _wrap_recorder(name)
    native.source_state(b"torch_sites", b"on", _wanted.encode())
    _follow()


def _wrap_recorder(name):
    record = getattr(torch._C, name, None)
    if record is None or hasattr(record, "_is_shardledgers"):
        return

    @functools.wraps(record)
    def wrapper(*args, **kwargs):
        enabled = bool(args[0] if args else kwargs.get("enabled"))
        if enabled:
            _program_records(True)
        try:
            return record(*args, **kwargs)
        finally:
            if not enabled:
                _program_records(False)

    wrapper._is_shardledgers = True
    setattr(torch._C, name, wrapper)


@guard.guarded
def _program_records(enabled):
    """The program turns a history of its own on or off: ours makes room before that, and is back after."""
    global _users_history, _mode
    _users_history = enabled
    if not enabled:
        _mode = _OFF  # whoever turns a history off turns off any
    _follow()


def _follow():
    global _mode
    if _library is None:
        return
    if _is_in_step:
        mode = _OPERATORS if _is_sampled else _OFF
    else:
        mode = _BETWEEN if _is_sampled else _STACKS  # what the step leaves behind is used and freed there, or not
    if _users_history or not guard.on:
        mode = _OFF
    if mode != _mode:
        result = _library.follow_sites(mode)
        _mode = mode if result == 0 else _OFF
        if result < 0:
            guard.say_once("sites", "the code that allocates is not known from here on "
                           f"({_library.error().decode('utf-8', 'replace')})")


def step_begins(number):
    global _is_in_step, _is_sampled
    _is_in_step, _is_sampled = True, _library is not None and _samples(number)
    _follow()


def _samples(number):
    global _next, _rest
    if _wanted == "all":
        return True
    if _wanted != "auto":
        first, end = map(int, _wanted.split(":"))
        return first <= number < end
    if number < _FIRST_STEPS:
        return True
    if not _differs or number < _next:
        return False
    _next, _rest = number + _rest, 2 * _rest
    return True


def step_ended(allocated):
    """allocated: bytes, of all devices; None: not known."""
    global _is_in_step, _end, _differs
    _is_in_step = False
    _differs = None not in (allocated, _end) and allocated != _end
    _end = allocated
    _follow()


def refused(device):
    """The allocator has just refused a request of this thread. Autograd's threads have no Python frames, and outside of the steps
    that are followed no forward operator is known: then the main thread's say what it waits for."""
    if _library is None:
        return
    site = _library.site_now() if _has_frames() or _mode == _OPERATORS else 0
    if not site and threading.get_ident() != threading.main_thread().ident:
        frame = sys._current_frames().get(threading.main_thread().ident)
        site = _library.site_of_waiting(ctypes.c_void_p(id(frame))) if frame is not None else 0
    if site:
        native.refused_site(device, site)


def _has_frames():
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(OWN_FILES):
        frame = frame.f_back
    return frame is not None


@guard.at_disable
def _close():
    if _library is not None:
        _library.follow_sites(_OFF)

"""Call stacks of PyTorch's own memory history, where that is what is recorded (history.py): interned as frames and sites."""

import os

from .. import native, options
from ..layout import OWN_FILES

_FIRST_STEPS = 2
_KNOWN_MAX = 1 << 20
_CALLER = 0  # enum sl_stack_of

if "_frames" not in globals():  # a reloaded module keeps what it has told
    _frames = {}  # (caller's id, file, line, function) → id
    _sites = {}  # innermost frame's id → site's
    _ended = 0  # steps so far
    _directory = ""  # with a slash; what is below has relative names
    _is_said = False


def wanted():
    """Whether what is recorded from now on, until the next step's end, gets its stack."""
    stacks = options.stacks()
    if stacks in ("all", "none"):
        return stacks == "all"
    if stacks == "auto":
        return _ended < _FIRST_STEPS
    first, end = map(int, stacks.split(":"))
    return first <= _ended < end


def period_ended():
    global _ended
    _ended += 1


def tell(device, frames):
    """The next allocator event of the device has these frames, innermost first."""
    global _directory, _is_said
    if not _is_said:
        _is_said = True
        _directory = os.path.join(os.getcwd(), "")
        native.source_state(b"torch_sites", b"on", b"of PyTorch's memory history, without operators")
    frame = 0
    for found in reversed(frames):
        if not found["filename"].startswith(OWN_FILES):
            frame = _frame(frame, found["filename"], found["line"], found["name"])
    if not frame or len(_sites) == _KNOWN_MAX:
        return
    site = _sites.get(frame)
    if site is None:
        site = _sites[frame] = len(_sites) + 1
        native.site(site, frame, b"", _CALLER)
    native.allocator_site(device, site)


def _frame(caller, file, line, function):
    key = caller, file, line, function
    known = _frames.get(key)
    if known is None and len(_frames) < _KNOWN_MAX:
        known = _frames[key] = len(_frames) + 1
        name = file.removeprefix(_directory) if len(_directory) > 1 else file
        native.frame(known, caller, name.encode("utf-8", "replace"), function.encode("utf-8", "replace"), max(line, 0))
    return known or caller

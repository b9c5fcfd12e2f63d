"""Starts the torch bridge, or what stands in for it, and takes the allocator's own statistics at step ends."""

import ctypes
import threading
import traceback
import types

import torch

from .. import facts, guard, native, options
from ..signatures import bind
from ..tagging import refusals
from . import built_ahead, compiler, history, sites

if "_library" not in globals():  # a reloaded module keeps what it started
    _library = None
    _allocator = None  # None until it is started; then "bridge", "history" or "none"
    _wants_history = False
    _step_ends = threading.Lock()


def start():
    """Ranges of record_function at once; the allocator as soon as CUDA is initialised."""
    global _library, _wants_history
    source = options.torch_source()
    if source == "off":
        native.source_state(b"torch_bridge", b"off", b"SHARDLEDGER_TORCH=off")
        return
    reason, how = "SHARDLEDGER_TORCH=history", ""
    if source != "history":
        try:
            _library, how = built_ahead.opened(_load, compiler.build)
        except (compiler.Unavailable, OSError) as error:
            reason = str(error)
    if _library is not None:
        native.source_state(b"torch_bridge", b"on", how.encode())
    else:
        native.source_state(b"torch_bridge", b"failed", reason.encode("utf-8", "replace"))
        if source == "bridge":
            guard.say(f"no torch bridge, so PyTorch's allocations are not recorded: {reason}")
            return
        guard.say(f"no torch bridge, so PyTorch's allocations are read at step ends only: {reason}")
        history.wrap_record_function()
    _wants_history = source != "bridge"
    facts.info("fidelity", "bridge" if _library is not None and _library.has_allocator() else "history")
    if torch.version.cuda:
        start_allocator()
        if _allocator is None:
            _when_initialised()


def _load(path):
    """The bridge's functions, by their names in torch_bridge.cpp without the prefix."""
    bound = bind("torch_bridge.cpp", ctypes.PyDLL(path), ctypes.CDLL(path))
    library = types.SimpleNamespace(**{symbol.removeprefix("slb_"): function for symbol, function in bound})
    if native.ranges is not None:
        if library.start_ranges(*(native.address(*function) for function in native.range_functions())) != 0:
            raise OSError(library.error().decode("utf-8", "replace"))
        native.call_through(library)
    return library


def _when_initialised():
    """Has torch.cuda call start_allocator when it is initialised.

    That is torch.cuda._lazy_call without its lock: the plugin calls us on the thread that may be holding it, in the
    middle of torch.cuda's own initialisation, which will still find the entry. A list's append needs no lock.
    """
    queue = getattr(torch.cuda, "_queued_calls", None)
    if isinstance(queue, list):
        queue.append((start_allocator, traceback.format_stack()))


def start_allocator():
    """Once the allocator is initialised; called again until then: by torch.cuda, and at step ends."""
    global _allocator
    if _allocator is not None or native.plugin is None or not guard.on:
        return
    try:
        _allocator = _start_allocator()
    except Exception as error:
        _allocator = "none"
        guard.disable(error)


def _start_allocator():
    backend = facts.allocator_backend()
    if backend != "native":
        why = ("PYTORCH_NO_CUDA_MEMORY_CACHING turns the caching allocator off" if backend == "uncached"
               else f"the allocator backend {backend} has no trace")
        reason = f"{why}; tensors are known from the driver's calls"
        native.source_state(b"torch_allocator", b"failed", reason.encode())
        return "none"
    reason = "no bridge"
    if _library is not None:
        r = _library.start_allocator(*(native.address(native.plugin, name) for name in ("sl_allocator_event", "sl_allocator_note")))
        if r == 0:
            _allocator_is_on("bridge", _restore())
            sites.start(_library)
            refusals.observe(_library, tag_workspaces_now)
            if _tag_workspaces() == 1:
                facts.info("cublas_workspaces", "table")
            return "bridge"
        if r > 0:
            return None
        reason = _library.error().decode("utf-8", "replace")
    if not _wants_history:
        native.source_state(b"torch_allocator", b"failed", reason.encode("utf-8", "replace"))
        return "none"
    if not torch.cuda.is_initialized() and not hasattr(torch.cuda._tls, "is_initializing"):
        return None
    _allocator_is_on(f"history, read at step ends ({reason})", history.start())
    facts.info("fidelity", "history")
    return "history"


def _restore():
    """What was there before the trace: the number of blocks, or why there is none. Nothing, where we came first."""
    functions = [native.address(native.plugin, name)
                 for name in ("sl_allocator_sequence", "sl_allocator_restore", "sl_allocator_existing")]
    blocks = _library.restore(*functions)
    return blocks if blocks >= 0 else _library.error().decode("utf-8", "replace")


def _allocator_is_on(how, before):
    if isinstance(before, str):
        how += f", without what was there before: {before}"
    elif before > 0:
        how += f", from a snapshot of {before} blocks"
        facts.info("attached", "late")
    native.source_state(b"torch_allocator", b"on", how.encode("utf-8", "replace"))


def step_ended():
    """Allocated bytes of all devices at the step's end; None where they are not known."""
    # What two threads end at once ends once: neither PyTorch's table nor its history may be read by both.
    if torch.cuda.is_initialized() and _step_ends.acquire(blocking=False):
        try:
            return _step_ended()
        finally:
            _step_ends.release()
    return None


def _step_ended():
    if _allocator is None:
        start_allocator()
    facts.device()
    if _allocator == "history":
        history.read()
    elif _allocator == "bridge":
        _tag_workspaces()
        allocated = _library.allocator_stats(*(native.address(native.plugin, name)
                                               for name in ("sl_allocator_sequence", "sl_allocator_stats")))
        return allocated if allocated >= 0 else None
    return None


def _tag_workspaces(waits=True):
    return _library.tag_workspaces(native.address(native.plugin, "sl_tag"), waits)


def tag_workspaces_now():
    """Where no step ends: at a refused request, whose thread may hold what a step's end waits for, and after a forward
    outside of steps. So nothing is waited for."""
    if _allocator == "bridge" and _step_ends.acquire(blocking=False):
        try:
            _tag_workspaces(waits=False)
        finally:
            _step_ends.release()

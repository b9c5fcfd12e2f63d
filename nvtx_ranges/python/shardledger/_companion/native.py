"""The two C libraries, by ctypes: ranges (libshardledger_nvtx.so) and facts (libshardledger.so).

Their functions are this module's, without the prefix: push is slr_push of ranges.h, info is sl_info of shardledger.h.
Before load(), and for whatever is not there, every function is a no-op that returns 0. Strings are passed as bytes.
The functions that never block are called with the GIL held (PyDLL): giving it up would cost more than they do, and may
lose it to another thread for milliseconds. Those that call the CUDA driver or wait release it.
Where there is a torch bridge, what is called for every range and module is a function of its own (torch_calls.h), without ctypes.
"""

import ctypes
import functools
import os
import re
import sys

from ..kinds import read
from .layout import library_directories
from .signatures import bind, signatures

API_VERSION = int(re.search(r"#define SL_API_VERSION (\d+)", read("shardledger.h"))[1])
PLUGIN = "libshardledger.so"
RANGES = "libshardledger_nvtx.so"
_RANGE_CALLS = "push", "pop", "start", "end"
_BRIDGES_CALLS = "prepare", "enter", "leave", "stack_is", "module_has_ranges", "module_has_no_ranges", "module_changed", "settle"


def nothing(*args):
    return 0


def _name(symbol):
    return "options_without_plugin" if symbol == "slr_option" else symbol.partition("_")[2]


if "plugin" not in globals():  # a reloaded module keeps its libraries
    for _file in ("ranges.h", "shardledger.h"):
        globals().update((_name(symbol), nothing) for symbol, *_ in signatures(_file))
    globals().update((_call, nothing) for _call in _BRIDGES_CALLS)
    plugin = None  # libshardledger.so when it is in the process
    ranges = None  # libshardledger_nvtx.so
    _loaded = False
    _handed_on = False


def _bind(file, library, waiting):
    globals().update((_name(symbol), function) for symbol, function in bind(file, library, waiting))


def _candidates(name):
    """Where a library may be: beside the plugin that the environment names, else where the package was installed."""
    for variable in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        path = os.environ.get(variable, "")
        if _names_plugin(variable):
            yield path if name == PLUGIN else os.path.join(os.path.dirname(os.path.abspath(path)), name)
    for directory in library_directories():
        yield os.path.join(directory, name)


def _open(name, mode, kind):
    for path in _candidates(name):
        try:
            return kind(path, mode=mode)
        except OSError:
            continue
    return None


def _names_plugin(variable):
    return os.path.basename(os.environ.get(variable, "")).startswith(PLUGIN)


def load():
    """Finds the libraries; once. The plugin is only looked for in the process, never loaded by us."""
    global ranges, _loaded
    if _loaded:
        return
    find_plugin()
    # Where CUDA brings the plugin in, that tells NVTX of itself. NVTX asks once: before that, it would do without a tool.
    if plugin is None and _names_plugin("CUDA_INJECTION64_PATH") and "NVTX_INJECTION64_PATH" not in os.environ:
        return
    _loaded = True
    ranges = _open(RANGES, os.RTLD_NOW, ctypes.PyDLL)
    if ranges is not None:
        _bind("ranges.h", ranges, ranges)
        attached()  # initialises NVTX, which brings the plugin in where NVTX_INJECTION64_PATH names it
    find_plugin()
    _hand_ranges_on()


def find_plugin():
    """Also later: CUDA may bring it in after the ranges were loaded."""
    global plugin
    if plugin is not None:
        return
    present = os.RTLD_NOW | os.RTLD_NOLOAD
    plugin = _open(PLUGIN, present, ctypes.PyDLL)
    if plugin is None:
        return
    if plugin.sl_api_version() != API_VERSION:  # another release's package: ranges still work, facts would not
        plugin = None
        return
    _bind("shardledger.h", plugin, _open(PLUGIN, present, ctypes.CDLL))
    _hand_ranges_on()


def _hand_ranges_on():
    """Ranges reach the plugin through NVTX. Where that has another tool (Nsight Systems, compute-sanitizer), both get them."""
    global _handed_on
    if _handed_on or plugin is None or ranges is None or not ranges_wanted(domain()):
        return
    _handed_on = True
    hand_on(*(address(plugin, f"sl_range_{what}") for what in ("push", "pop", "start", "end", "mark")))


def unwind(opened, known):
    """Closes a thread's ranges, which are opened from the outermost on, down to the known one, and that one."""
    while opened:
        pop()
        if opened.pop() is known:
            return


def address(library, symbol):
    """A function's address, for the torch bridge to call without Python."""
    return _pointer(library, symbol)


@functools.lru_cache(maxsize=None)
def _pointer(library, symbol):
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p)


def range_functions():
    """[(library, symbol)] of what ranges go to. Where the plugin is NVTX's tool they need not go through NVTX."""
    is_tool = plugin is not None and not _handed_on
    return [(plugin, f"sl_range_{what}") if is_tool else (ranges, f"slr_{what}") for what in _RANGE_CALLS]


def call_through(bridge):
    """From now on what is called for every range and module is a function of the bridge's."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():  # which guards their tables
        return
    if bridge.start_calls(*(_pointer(*function) for function in range_functions())) != 0:
        return
    for name in _RANGE_CALLS + _BRIDGES_CALLS:
        globals()[name] = ctypes.cast(bridge.python_function(name.encode()), ctypes.py_object).value

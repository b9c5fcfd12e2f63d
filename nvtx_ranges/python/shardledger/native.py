"""The two C libraries, by ctypes: ranges (libshardledger_nvtx.so) and facts (libshardledger.so).

Before load(), and for whatever is not there, every function is a no-op that returns 0. Strings are passed as bytes.
The functions that never block are called with the GIL held (PyDLL): giving it up would cost more than they do, and may
lose it to another thread for milliseconds. Those that call the CUDA driver or wait release it.
"""

import ctypes
import os

from .layout import library_directories

API_VERSION = 5
PLUGIN = "libshardledger.so"
RANGES = "libshardledger_nvtx.so"

_U32, _U64, _TEXT, _INT = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int


def _nothing(*args):
    return 0


if "mark" not in globals():  # a reloaded module keeps its libraries
    # Ranges: (kind, name, value). They reach any NVTX tool.
    attached = domain = push = pop = start = end = mark = _nothing
    # Facts: see plugin/shardledger.h. They reach the plugin only.
    recording = ranges_wanted = info = source_state = module = tag = allocator_event = allocator_sequence = allocator_stats = _nothing
    allocator_event_at = allocator_told = allocator_restore = allocator_existing = _nothing
    device_sample = device_sample_if_due = cupti_release = cupti_reacquire = _nothing
    plugin = None  # libshardledger.so when it is in the process
    ranges = None  # libshardledger_nvtx.so
    _loaded = False
    _handed_on = False

_RANGE_CALLS = {
    "attached": ("slr_attached", _INT, ()),
    "domain": ("slr_domain", ctypes.c_void_p, ()),
    "push": ("slr_push", None, (_U32, _TEXT, _U64)),
    "pop": ("slr_pop", None, ()),
    "start": ("slr_start", _U64, (_U32, _TEXT, _U64)),
    "end": ("slr_end", None, (_U64,)),
    "mark": ("slr_mark", None, (_U32, _TEXT, _U64)),
}
_FACT_CALLS = {
    "ranges_wanted": ("sl_ranges_wanted", _INT, (ctypes.c_void_p,)),
    "recording": ("sl_recording", _INT, ()),
    "info": ("sl_info", None, (_TEXT, _TEXT)),
    "source_state": ("sl_source_state", None, (_TEXT, _TEXT, _TEXT)),
    "module": ("sl_module", None, (_U32, _U32, _TEXT, _TEXT, _U32, _U32, _U64, _U64)),
    "tag": ("sl_tag", None, (_INT, _U64, _TEXT, _U32, _TEXT)),
    "allocator_event": ("sl_allocator_event", None, (_INT, _INT, _U64, _U64, _U64, _U64, _U64)),
    "allocator_event_at": ("sl_allocator_event_at", None, (_INT, _INT, _U64, _U64, _U64, _U64, _U64, _U64)),
    "allocator_told": ("sl_allocator_told", None, (_U64,)),
    "allocator_sequence": ("sl_allocator_sequence", _U32, (_INT,)),
    "allocator_restore": ("sl_allocator_restore", None, (_INT, _U32, _U32, _U32)),
    "allocator_existing": ("sl_allocator_existing", None, (_INT, _U64, _U64, _U64, _U64, _U64, _U64, _INT, _INT)),
    "allocator_stats": ("sl_allocator_stats", None, (_INT, _U32, _U64, _U64, _U64, _U64)),
}
_WAITING_CALLS = {
    "device_sample": ("sl_device_sample", None, ()),
    "device_sample_if_due": ("sl_device_sample_if_due", None, ()),
    "cupti_release": ("sl_cupti_release", _INT, ()),
    "cupti_reacquire": ("sl_cupti_reacquire", _INT, ()),
}


def _bind(library, calls):
    for name, (symbol, result, arguments) in calls.items():
        function = getattr(library, symbol)
        function.restype = result
        function.argtypes = arguments
        globals()[name] = function


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
        _bind(ranges, _RANGE_CALLS)
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
    plugin.sl_api_version.restype = _U32
    if plugin.sl_api_version() != API_VERSION:  # another release's package: ranges still work, facts would not
        plugin = None
        return
    _bind(plugin, _FACT_CALLS)
    _bind(_open(PLUGIN, present, ctypes.CDLL), _WAITING_CALLS)
    _hand_ranges_on()


def _hand_ranges_on():
    """Ranges reach the plugin through NVTX. Where that has another tool (Nsight Systems, compute-sanitizer), both get them."""
    global _handed_on
    if _handed_on or plugin is None or ranges is None or not ranges_wanted(domain()):
        return
    _handed_on = True
    ranges.slr_hand_on.argtypes = (ctypes.c_void_p,) * 5
    ranges.slr_hand_on.restype = None
    ranges.slr_hand_on(*(address(plugin, f"sl_range_{what}") for what in ("push", "pop", "start", "end", "mark")))


def address(library, symbol):
    """A function's address, for the torch bridge to call without Python."""
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p)

"""The numbers that C code and this package share, read from the C files themselves: kinds.def and events.h."""

import os
import re

_HERE = os.path.dirname(os.path.abspath(__file__))


def source(name):
    """Path of a C file that is shipped with the package (native/), or of the source tree's original."""
    for directory in ("native", "../..", "../../../plugin", "../../../plugin/format"):
        path = os.path.normpath(os.path.join(_HERE, directory, name))
        if os.path.exists(path):
            return path
    raise FileNotFoundError(name)


def read(name):
    with open(source(name), encoding="utf-8") as file:
        return file.read()


def _values(text, pattern):
    return {name: int(value) for value, name in re.findall(pattern, text, re.MULTILINE)}


# {"forward": 2, …}: enum sl_kind.
KIND = _values(read("kinds.def"), r"^KIND\((\d+), (\w+),")

_ENUMERATORS = {name: int(value) for name, value in re.findall(r"\bSL_(\w+) = (\d+)", read("events.h"))}

# Enum sl_allocator_action, by the words that torch's snapshots use.
ACTION = {
    "alloc": _ENUMERATORS["ALLOC"],
    "free_requested": _ENUMERATORS["FREE_REQUESTED"],
    "free_completed": _ENUMERATORS["FREE_COMPLETED"],
    "segment_alloc": _ENUMERATORS["SEGMENT_ALLOC"],
    "segment_free": _ENUMERATORS["SEGMENT_FREE"],
    "segment_map": _ENUMERATORS["SEGMENT_MAP"],
    "segment_unmap": _ENUMERATORS["SEGMENT_UNMAP"],
    "snapshot": _ENUMERATORS["ALLOCATOR_SNAPSHOT"],
    "oom": _ENUMERATORS["OUT_OF_MEMORY"],
}
ACTION_OTHER = _ENUMERATORS["ALLOCATOR_OTHER"]

# Enum sl_block_state, by the words that torch's snapshots use; what is freed but in use has had several.
BLOCK_STATE = {
    "inactive": _ENUMERATORS["BLOCK_FREE"],
    "active_allocated": _ENUMERATORS["BLOCK_ALLOCATED"],
}
BLOCK_PENDING = _ENUMERATORS["BLOCK_PENDING"]

# Enum sl_module_flags.
MODULE_FSDP = _ENUMERATORS["MODULE_FSDP"]
MODULE_ROOT = _ENUMERATORS["MODULE_ROOT"]
MODULE_RECOMPUTE = _ENUMERATORS["MODULE_RECOMPUTE"]
MODULE_DDP = _ENUMERATORS["MODULE_DDP"]

# Enum sl_parameter_flags, and enum sl_fsdp_unit_flags.
PARAMETER_TRAINED = _ENUMERATORS["PARAMETER_TRAINED"]
PARAMETER_OFFLOADED = _ENUMERATORS["PARAMETER_OFFLOADED"]
UNIT_OFFLOADED = _ENUMERATORS["UNIT_OFFLOADED"]

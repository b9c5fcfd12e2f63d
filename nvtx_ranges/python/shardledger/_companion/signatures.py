"""ctypes signatures of C functions, read from their declarations: shardledger.h, ranges.h, torch_bridge.cpp."""

import ctypes
import re

from ..kinds import read

_TYPES = {"void": None, "int": ctypes.c_int, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
          "int64_t": ctypes.c_int64, "const char *": ctypes.c_char_p}
_DECLARATION = re.compile(r"^SL[RB]?_API(_WAITS)? ([\w ]+?[ *]+)(\w+)\(([^)]*)\)", re.MULTILINE)


def _type(text):
    """Of "const char *" or "uint64_t "; every pointer that is no text is an address."""
    return _TYPES[text.strip()] if text.strip() in _TYPES else ctypes.c_void_p


def _parameter(text):
    kind, array = re.fullmatch(r"(.*?)\w+(\[\d+\])?", text, re.DOTALL).groups()
    return ctypes.c_void_p if array else _type(kind)


def signatures(file):
    """[(name, result, parameters, waits)] of what a file declares; waits: it gives Python's lock up (SL_API_WAITS)."""
    return [(name, _type(result), [_parameter(p.strip()) for p in parameters.split(",") if p.strip() not in ("", "void")],
             bool(waits))
            for waits, result, name, parameters in _DECLARATION.findall(read(file))]


def bind(file, holding, waiting):
    """[(name, function)] of a library that was opened twice: by PyDLL, and by CDLL for the functions that wait."""
    bound = []
    for name, result, parameters, waits in signatures(file):
        function = getattr(waiting if waits else holding, name)
        function.restype, function.argtypes = result, parameters
        bound.append((name, function))
    return bound

"""The torch bridges that a release brings, so that a job needs no compiler.

native/built/bridge-2.11-abi1.so is for all patch releases of one version of PyTorch and one C++ ABI; CUDA's version makes no
difference. scripts/bridges makes them. They fit PyTorch's own releases alone: what calls itself otherwise (2.9.0a0+git…, as in
images of vendors) may differ from these in its headers.
"""

import contextlib
import os
import re

import torch

from ..layout import OWN_FILES

_RELEASE = re.compile(r"(\d+\.\d+)\.\d+(\+cu\d+)?")
_DIRECTORY = os.path.join(OWN_FILES, "native", "built")


def abi():
    """Whether torch's std::string is C++11's."""
    return int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))


def name(version, abi):
    """version: 2.11, say."""
    return f"bridge-{version}-abi{abi}.so"


def find():
    """Path of the file for the torch that is imported, or None."""
    release = _RELEASE.fullmatch(str(torch.__version__))
    if not release or not torch.version.cuda or torch.version.debug:
        return None
    path = os.path.join(_DIRECTORY, name(release[1], abi()))
    return path if os.path.exists(path) else None


def opened(load, compile):
    """What load makes of the file that a release brings, or of the one that compile makes; and which of them it is."""
    path = find()
    if path is not None:
        with contextlib.suppress(OSError):  # a system older than the file: what is compiled here fits
            return load(path), f"built ahead: {os.path.basename(path)}"
    return load(compile()), "compiled here"

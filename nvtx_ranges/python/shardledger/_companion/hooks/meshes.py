"""Where this rank stands in each DeviceMesh that the program makes: dimensions, their sizes, and its coordinate.

A fact "mesh.N" for the N-th: "SIZE:COORDINATE:NAME" for each dimension, the outermost first. A slice of a mesh has nothing new to
tell, nor has one that the rank is not in.
"""

import functools
import sys

from .. import compiling, facts, guard, imports
from ..compiling import is_traced

_MODULE = "torch.distributed.device_mesh"
_MOST = 64  # a program that makes one a step must not fill the log

if "_told" not in globals():  # a reloaded module goes on counting
    _told = []


def _describe(mesh):
    names = mesh.mesh_dim_names or ()
    dims = []
    for place, (size, coordinate) in enumerate(zip(mesh.mesh.shape, mesh.get_coordinate())):
        name = str(names[place]) if place < len(names) else str(place)
        dims.append(f"{size}:{coordinate}:{'_'.join(name.split()) or place}")
    return " ".join(dims)


@compiling.hidden
def _tell(mesh):
    try:
        if getattr(mesh, "_root_mesh", None) is not None or mesh.get_coordinate() is None:
            return
        text = _describe(mesh)
        if text and text not in _told and len(_told) < _MOST:
            facts.info(f"mesh.{len(_told)}", text)
            _told.append(text)
    except Exception as error:  # another version of it, or one that stands for no processes
        guard.say_once(_MODULE, f"device meshes are not recorded ({guard.describe(error)})")


def _told_by(init):
    @functools.wraps(init)
    def wrapper(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if guard.on and kwargs.get("_init_backend", True) and not is_traced():
            _tell(self)

    wrapper._is_shardledgers = True
    return compiling.skipped(wrapper)


def _wrap():
    try:
        mesh = sys.modules[_MODULE].DeviceMesh
        if not hasattr(mesh.__init__, "_is_shardledgers"):
            mesh.__init__ = _told_by(mesh.__init__)
    except Exception as error:
        guard.say_once(_MODULE, f"device meshes are not recorded ({guard.describe(error)})")


def install():
    if _MODULE in sys.modules:
        _wrap()
    else:
        imports.when_imported(_MODULE, _wrap)

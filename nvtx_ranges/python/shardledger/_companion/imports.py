"""Calls a function as soon as a module that is not there yet has been imported whole."""

import importlib.abc
import sys

if "_waiting" not in globals():  # a reloaded module goes on waiting
    _waiting = {}  # module's name → function
    _finder = None


def when_imported(name, function):
    """function() runs when the module's code has, on the thread that imports it; it must not raise."""
    global _finder
    _waiting[name] = function
    if _finder is None:
        _finder = _Finder()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the other finders find the module. It stays until that has run: programs ask for a module's spec, to know
    whether it is there, long before they import it."""

    def find_spec(self, name, path, target=None):
        if name not in _waiting:
            return None
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find else None
            if spec is not None:
                break
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, name)
        return spec


class _Loader(importlib.abc.Loader):
    """The real loader, and then the function."""

    def __init__(self, loader, name):
        self._loader = loader
        self._name = name

    def __getattr__(self, name):  # for who asks a spec's loader for more: get_filename, get_data
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # Nobody but us must see the wrapper: torch and pkgutil ask the loader for its own methods.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        function = _waiting.pop(self._name, None)
        if not _waiting and _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        if function is not None:
            function()

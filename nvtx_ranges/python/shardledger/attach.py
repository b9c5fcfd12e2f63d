"""When to install the hooks: as soon as torch is imported whole, and not before."""

import importlib.abc
import sys
import threading
import time

from . import guard, native

if "_installed" not in globals():  # a reloaded module has installed its hooks already
    _lock = threading.Lock()
    _installed = False


def attach():
    """Starts telling the ledger about this process; returns whether anybody listens. Calling it again is harmless.

    The plugin calls it on the main thread, possibly in the middle of `import torch`, unless SHARDLEDGER_PYTHON=off; the
    program may, at any time. Never raises.
    """
    try:
        native.load()
        native.find_plugin()
        if native.plugin is None and not native.attached():
            return False
        if "torch" not in sys.modules:
            _TorchImport.watch()
        elif _is_importing(sys.modules["torch"]):
            threading.Thread(target=_wait_for_torch, name="shardledger", daemon=True).start()
        else:
            _install()
        return True
    except Exception as error:
        _report(error)
        return False


def _is_importing(module):
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _wait_for_torch():
    # A thread, because nothing else is certain to run when an import that is under way ends. From a file system that
    # many ranks read at once it takes minutes.
    while True:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if not _is_importing(torch):
            _install()
            return
        time.sleep(0.005)


class _TorchImport(importlib.abc.MetaPathFinder):
    """Waits for `import torch`: lets the other finders find it, and installs when its code has run.

    It stays until then: programs ask for torch's spec, to know whether it is there, long before they import it.
    """

    @classmethod
    def watch(cls):
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find else None
            if spec is not None:
                break
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """The real loader, and then _install()."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):  # for who asks a spec's loader for more: get_filename, get_data
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # Nobody but us must see the wrapper: torch and pkgutil ask the loader for its own methods.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _install()


def _install():
    global _installed
    with _lock:
        if _installed:
            return
        _installed = True
    try:
        from . import install

        install.install()
    except Exception as error:
        _report(error)


def _report(error):
    guard.on = True  # so that disable() has something to turn off
    guard.disable(error)

"""When to install the hooks: as soon as torch is imported whole, and not before."""

import sys
import threading
import time

from . import guard, imports, native

if "_installed" not in globals():  # a reloaded module has installed its hooks already
    _lock = threading.Lock()
    _installed = False


def attach() -> bool:
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
            imports.when_imported("torch", _install)
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

"""Python runs this first in every process of a rehearsal, because `shardledger rehearse` puts its directory before all others:
torch.distributed is to be seen before the program is. Then it runs the sitecustomize that it hides, if there is one."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _prepare():
    elsewhere = os.path.join(os.path.dirname(_HERE), "elsewhere")
    if elsewhere not in sys.path:
        sys.path.append(elsewhere)  # a package that this Python has comes first, as when the plugin attaches
    from shardledger._companion.rehearsing import rehearsal

    rehearsal.prepare()


def _run_hidden():
    path = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("SHARDLEDGER_REHEARSAL"):
    try:
        _prepare()
    except Exception as error:  # one without the other is no rehearsal, and the command says so
        sys.stderr.write(f"shardledger: this process is no part of the rehearsal ({type(error).__name__}: {error})\n")
_run_hidden()

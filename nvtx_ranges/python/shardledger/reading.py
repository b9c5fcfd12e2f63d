"""Where torch reads a module instead of running it: copies, pickles, torch.jit.script, torch.export.

There our hooks are not on it. Copies and pickles would take them along, a script would compile them, and strict export
accepts no global hook.
"""

import collections
import contextlib
import functools

import torch

from . import forward, guard

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_TABLES = _HOOKS + ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


def _tables_without_ours(attributes):
    """{name: table} of those of a module's tables that have something of ours, without that."""
    ours = {key for name in _HOOKS for key, hook in attributes.get(name, {}).items() if isinstance(hook, forward.Hook)}
    tables = {name: attributes[name] for name in _TABLES if not ours.isdisjoint(attributes.get(name, ()))}
    return {name: collections.OrderedDict((key, value) for key, value in table.items() if key not in ours)
            for name, table in tables.items()}


def _leaves_hooks_behind(getstate):
    @functools.wraps(getstate)
    def __getstate__(self):
        state = getstate(self)  # a copy
        try:
            state.update(_tables_without_ours(state))
        except Exception as error:
            guard.disable(error)
        return state

    return __getstate__


@contextlib.contextmanager
def _hooks_away(root):
    taken = []
    try:
        with forward.global_hook_away():
            for module in torch.nn.Module.modules(root) if isinstance(root, torch.nn.Module) else ():
                attributes = vars(module)
                tables = _tables_without_ours(attributes)
                taken.append((attributes, {name: attributes[name] for name in tables}))
                attributes.update(tables)
            yield
    finally:
        for attributes, tables in taken:
            attributes.update(tables)


def _without_hooks(function):
    """function's first argument is the module that it reads."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with _hooks_away(next(iter(args or kwargs.values()), None)):
            return function(*args, **kwargs)

    return wrapper


def install():
    torch.nn.Module.__getstate__ = _leaves_hooks_behind(torch.nn.Module.__getstate__)
    torch.export.export = _without_hooks(torch.export.export)
    scripts = torch.jit._recursive  # private, so another version may lack what is looked for
    if hasattr(scripts, "create_script_module"):
        scripts.create_script_module = _without_hooks(scripts.create_script_module)

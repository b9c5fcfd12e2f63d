"""Ranges of modules' forwards.

A global pre-hook waits for a module that is called from outside any other, a root. It is taken out of torch's table
while a root runs, so the modules inside pay nothing but their own hooks, and those are put on selected modules only.
(Out of the table and back under the same key, because torch.compile guards on the table's keys.)

A module that is called from outside during backward is one that activation checkpointing runs again: `recompute`.
"""

import contextlib
import functools
import threading
import warnings
import weakref

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from . import backward, facts, guard, modules, native, steps, tags, uncalled
from .kinds import KIND

_FORWARD, _RECOMPUTE, _EVAL = KIND["forward"], KIND["recompute"], KIND["eval"]

_INSIDE_WRAPPER = b"._checkpoint_wrapped_module"  # what a wrapper runs again shares its entry, but is not the wrapper

_is_compiling = torch.compiler.is_compiling
_is_tracing = torch._C._is_tracing
_backward_task = torch._C._current_graph_task_id
_nothing = contextlib.nullcontext().__exit__  # takes anything, returns None, and can be pickled anywhere

_global_hooks = None  # torch's own table
_global_key = None
_units = []  # (weak reference to an FSDP2 unit, id of our pre-hook, id of our post-hook)
_outermost = None  # (known, thread) of the call for whose time the global hook is out of the table


class _Thread(threading.local):
    def __init__(self):
        self.open = []  # the modules.Known whose range is open on this thread
        self.entered = None  # the root that the global hook has entered, until its own pre-hook runs


_thread = _Thread()


def _is_read():
    """Torch makes a graph of what the modules do: it is no training, and nothing of ours belongs into the graph."""
    return _is_compiling() or _is_tracing()


class Hook:
    """A hook on one module. A copied or pickled module leaves it behind (reading.py); one that takes all that it has
    along gets one that does nothing."""

    def __init__(self, known):
        self.known = known

    def __deepcopy__(self, memo):
        return _nothing

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


class _PreHook(Hook):
    def __call__(self, module, args):
        if not _is_read() and guard.on and not _is_compiled(module):
            if _thread.entered is self.known:
                _thread.entered = None
            else:
                _enter(self.known, module)


class _PostHook(Hook):
    def __call__(self, module, args, kwargs, output):
        if not _is_read() and not _is_compiled(module):
            _leave(self.known, args, kwargs, output)


def _is_compiled(module):
    return isinstance(module._compiled_call_impl, _CompiledCall)


class _CompiledCall:
    """What `module.compile()` made, with a range around it: inside, the module's hooks are compiled away."""

    def __init__(self, module, call):
        self.module = module
        self.call = call

    def __call__(self, *args, **kwargs):
        if _is_compiling() or not guard.on:
            return self.call(*args, **kwargs)
        known = _enter_compiled(self.module, args)
        output = None
        try:
            output = self.call(*args, **kwargs)
            return output
        finally:
            if known is not None:
                _leave(known, args, kwargs, output)


def _enter_compiled(module, args):
    """Does what the global hook and the module's own would do. Returns what to leave, or None."""
    if _global_key in _global_hooks:
        _called_from_outside(module, args)
    else:
        known = modules.find(module)
        if known is not None and _is_hooked(known, module):
            _enter(known, module)
    known = modules.find(module)
    return known if known is not None and known in _thread.open else None


def _is_hooked(known, module):
    """Also whether the hooks are still there: programs clear a module's hooks, all of them."""
    return known.hooks[0] in module._forward_pre_hooks and known.hooks[1] in module._forward_hooks


def _put_hooks(known, module):
    module._forward_pre_hooks.pop(known.hooks[0], None)
    module._forward_hooks.pop(known.hooks[1], None)
    # First of the pre-hooks and last of the others, so that FSDP's own ranges lie inside.
    before = module.register_forward_pre_hook(_PreHook(known), prepend=True)
    after = module.register_forward_hook(_PostHook(known), with_kwargs=True, always_call=True)
    known.hooks = before.id, after.id
    if known.entry.fsdp2:
        _units.append((weakref.ref(module), before.id, after.id))
    _wrap_compiled(module)


def _keep_outermost():
    """Other tools (FSDPMemTracker) take FSDP's hooks away and put theirs around them; ours stay outside of all."""
    for reference, before, after in _units:
        module = reference()
        if module is None:
            _units[:] = [unit for unit in _units if unit[0]() is not None]
            return
        hooks = module._forward_pre_hooks
        if before in hooks and next(iter(hooks)) != before:
            hooks.move_to_end(before, last=False)
        hooks = module._forward_hooks
        if after in hooks and next(reversed(hooks)) != after:
            hooks.move_to_end(after)


def _wrap_compiled(module):
    call = getattr(module, "_compiled_call_impl", None)
    if call is not None and not isinstance(call, _CompiledCall):
        module._compiled_call_impl = _CompiledCall(module, call)


def _enter(known, module):
    try:
        recomputing = _backward_task() != -1
        if known.alias and not recomputing:
            return  # the wrapper's range is open
        stack = _thread.open
        if known in stack:
            _unwind(known)  # left by what no hook sees, such as KeyboardInterrupt
        kind = _RECOMPUTE if recomputing else _FORWARD
        if not stack and not recomputing:
            if torch.is_grad_enabled():
                steps.forward(module)
            elif not module.training:
                kind = _EVAL
        name = known.entry.name + _INSIDE_WRAPPER if known.alias else known.entry.name
        native.push(kind, name, known.entry.id)
        stack.append(known)
    except Exception as error:
        guard.disable(error)


def _leave(known, args, kwargs, output):
    try:
        stack = _thread.open
        if known in stack:
            _unwind(known)
            if guard.on and _backward_task() == -1:
                if not stack:
                    tags.inputs(known.entry, args, kwargs)
                    steps.part_ended()
                if output is not None and not known.entry.fsdp2 and torch.is_grad_enabled():
                    backward.watch(known.entry, args, kwargs, output)
        if _outermost is not None and _outermost == (known, threading.get_ident()):
            _arm()
    except Exception as error:
        guard.disable(error)


def _unwind(known):
    """Closes this thread's ranges down to the given one, and that one."""
    stack = _thread.open
    while stack:
        native.pop()
        if stack.pop() is known:
            return


def close_stale():
    """Closes what an interrupt left open on this thread. Called where no forward of this thread can be running."""
    if _thread.open:
        _unwind(_thread.open[0])
    if _outermost is not None and _outermost[1] == threading.get_ident():
        _arm()


def _arm():
    global _outermost
    _outermost = None
    _thread.entered = None
    if guard.on:
        _global_hooks[_global_key] = _called_from_outside


def _called_from_outside(module, args):
    """The global pre-hook: runs before the module's own hooks, of which torch has already taken a list."""
    global _outermost
    if _is_read() or not guard.on:
        return
    try:
        known = modules.find(module) or _first_call(module)
        if known is None or known.entry is None:
            return
        if not modules.takes_hooks(module):
            if not _thread.open and torch.is_grad_enabled():
                steps.forward(module)
            return
        hooked = _is_hooked(known, module)
        own_hook_follows = hooked and not _is_compiled(module)
        if not hooked:
            _hook(known, module)
        if _backward_task() == -1:
            _keep_outermost()
        _outermost = (known, threading.get_ident())
        _global_hooks.pop(_global_key, None)
        _enter(known, module)
        # Torch took its list of pre-hooks before this one ran: ours is on it when it was there before.
        _thread.entered = known if own_hook_follows else None
    except Exception as error:
        guard.disable(error)


def _first_call(root):
    """Gets to know a root and everything in it. None while a backward runs: what is called then is no model."""
    if _backward_task() != -1:
        return None
    if not modules.has_tensors(root):
        return modules.remember(root)
    facts.ranks()
    modules.register(root)
    tags.model(root)
    uncalled.model_called_first(root)
    return modules.find(root)


def _hook(known, root):
    """Hooks on a root and on the modules in it that get ranges of their own."""
    for module, entry in modules.members(root):
        inner = modules.find(module)
        if entry.selected and module is not root and not _is_hooked(inner, module):
            _put_hooks(inner, module)
    _put_hooks(known, root)


@guard.at_disable
def _uninstall():
    if _global_hooks is not None:
        _global_hooks.pop(_global_key, None)
    while _thread.open:
        _thread.open.pop()
        native.pop()


@contextlib.contextmanager
def global_hook_away():
    hook = _global_hooks.pop(_global_key, None)
    try:
        yield
    finally:
        if hook is not None and guard.on:
            _global_hooks[_global_key] = hook


def ignore_compile_warning():
    """torch.compile warns that a global hook runs once more for its wrapper. Ours knows, and is a no-op inside."""
    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")


def install():
    global _global_hooks, _global_key
    handle = register_module_forward_pre_hook(_called_from_outside)
    _global_hooks, _global_key = handle.hooks_dict_ref(), handle.id
    ignore_compile_warning()

    compile_module = torch.nn.Module.compile

    @functools.wraps(compile_module)
    def compile(self, *args, **kwargs):
        result = compile_module(self, *args, **kwargs)
        if guard.on:
            _wrap_compiled(self)
        return result

    torch.nn.Module.compile = compile

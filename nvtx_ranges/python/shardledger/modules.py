"""Names of modules: one walk over a model when it is first called.

Every module gets an id and a `module` event; some are selected (SHARDLEDGER_MODULES) and get ranges of their own.

A module's name is its path in the model without the wrappers that only change how it runs: activation checkpointing,
torch.compile, DDP and FSDP1. The wrapped module is the same module to a reader, and shares the wrapper's entry.
FSDP2 units are the exception: they are named exactly as in FSDP's own ranges (`FSDP::all_gather (blocks.0)`), that is by
their full path, so that the two can be joined by name.
"""

import weakref

import torch

from . import native, options
from .kinds import MODULE_DDP, MODULE_FSDP, MODULE_RECOMPUTE, MODULE_ROOT
from .tensors import unseen

# {attribute that holds the wrapped module: class of the wrapper}
_WRAPPERS = {
    "_checkpoint_wrapped_module": "ActivationWrapper",
    "_orig_mod": "OptimizedModule",
    "_fsdp_wrapped_module": "FullyShardedDataParallel",
    "module": "DistributedDataParallel",
}

_known = {}  # id(module) → Known
_next_id = 1


class Entry:
    """One module event."""

    __slots__ = ("id", "parent", "fqn", "path", "name", "class_name", "flags", "depth", "parameter_bytes",
                 "buffer_bytes", "selected", "fsdp2")

    def nearest_selected(self):
        entry = self
        while entry is not None and not entry.selected:
            entry = entry.parent
        return entry or self


class Known:
    """What is remembered of a live module. entry is None for one that holds nothing, such as a loss."""

    __slots__ = ("module", "entry", "alias", "hooks")  # the ids of its pre-hook and post-hook


def find(module):
    known = _known.get(id(module))
    return known if known is not None and known.module() is module else None


def remember(module, entry=None, alias=False):
    known = find(module)
    if known is None:
        known = Known()
        known.module = weakref.ref(module, lambda _, key=id(module): _forget(key))
        known.hooks = None, None
        _known[id(module)] = known
    known.entry, known.alias = entry, alias
    return known


def _forget(key):
    known = _known.get(key)
    if known is not None and known.module() is None:  # else the address already belongs to another module
        del _known[key]


def parameters_of(root):
    """All of a model. Models have methods of their own called parameters, with other arguments and results."""
    return (parameter for _, parameter in torch.nn.Module.named_parameters(root))


def has_tensors(root):
    return any(True for _ in parameters_of(root)) or any(True for _ in torch.nn.Module.named_buffers(root))


def _is_a(module, name):
    """By name, so that torch.distributed is not imported for jobs that do not use it."""
    return any(c.__name__ == name and c.__module__.startswith("torch.") for c in type(module).__mro__)


def is_fsdp2(module):
    return _is_a(module, "FSDPModule")


def is_fsdp(module):
    return is_fsdp2(module) or _is_a(module, "FullyShardedDataParallel")


def takes_hooks(module):
    """Scripted and traced modules are not Python inside, and refuse them. What they hold is known all the same."""
    return not isinstance(module, torch.jit.ScriptModule)


def _class_name(module):
    """The user's class: fully_shard makes a class of its own from it, wrappers hide it."""
    for attribute, wrapper in _WRAPPERS.items():
        if attribute in module._modules and _is_a(module, wrapper):
            return _class_name(module._modules[attribute])
    kind = type(module)
    if is_fsdp2(module) and len(kind.__mro__) > 2 and kind.__name__.startswith("FSDP"):
        kind = kind.__mro__[2]
    return kind.__name__


def local(tensor):
    """This rank's part of a DTensor; other tensors as they are."""
    return getattr(tensor, "_local_tensor", tensor)


def size(tensor):
    if torch.nn.parameter.is_lazy(tensor):
        return 0
    tensor = local(tensor)
    return tensor.numel() * tensor.element_size()


def _fsdp_parameters(module):
    """FSDP2's own objects for the parameters of a unit."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [parameter for group in groups if group is not None for parameter in group.fsdp_params]


def _sharded_parameters(module):
    """{(module, name): parameter} of an FSDP2 unit: the shards, which its modules do not hold while it is unsharded."""
    found = {}
    try:
        for parameter in _fsdp_parameters(module):
            where = parameter._module_info
            found[id(where.module), where.param_name] = parameter.sharded_param
            for tied in zip(where.shared_modules, where.shared_param_names):
                found[id(tied[0]), tied[1]] = parameter.sharded_param
    except AttributeError:  # another version's names: then what the modules hold has to do
        pass
    return found


def alive():
    """[(module, entry)] of every registered module that there still is."""
    found = [(known.module(), known.entry) for known in list(_known.values())]
    return [(module, entry) for module, entry in found if module is not None and entry is not None]


def gathered_parameters():
    """(entry, name, parameter) of all parameters of FSDP2 that are gathered now."""
    for module, _ in alive():
        if not is_fsdp2(module):
            continue
        for parameter in _fsdp_parameters(module):
            where = parameter._module_info
            holder = find(where.module)
            if parameter.sharded_state.name == "UNSHARDED" and holder is not None and holder.entry is not None:
                yield holder.entry, where.param_name, parameter._unsharded_param


def parameters(members):
    """(entry, name, parameter) of each parameter of [(module, entry)]; FSDP2's as shards, also while unsharded."""
    sharded = {}
    for module, _ in members:
        if is_fsdp2(module):
            sharded.update(_sharded_parameters(module))
    for module, entry in members:
        for name, parameter in module._parameters.items():
            parameter = sharded.get((id(module), name), parameter)
            if parameter is not None:
                yield entry, name, parameter


def buffers(members):
    for module, entry in members:
        for name, buffer in module._buffers.items():
            if buffer is not None:
                yield entry, name, buffer


def members(root):
    """[(module, entry)] of a registered model's modules."""
    found = ((module, find(module)) for module in root.modules())
    return [(module, known.entry) for module, known in found if known is not None and known.entry is not None]


class Tree:
    """One walk: `members` lists (module, entry, alias) in the order of named_modules; alias: wrapped by the entry's own."""

    def __init__(self, root):
        self.members = []
        self.has_fsdp = False
        self._prefix = ""  # of paths below a root that is itself a wrapper, which FSDP does not know
        by_path = {}
        for path, module in root.named_modules():
            parent_path, _, attribute = path.rpartition(".")
            parent_module, parent = by_path[parent_path] if path else (None, None)
            fsdp2 = is_fsdp2(module)
            wrapped = attribute in _WRAPPERS and parent is not None and _is_a(parent_module, _WRAPPERS[attribute])
            alias = wrapped and (parent.parent is None or not fsdp2)
            if alias:
                entry = parent
                if parent.parent is None:
                    self._prefix = path + "."
            else:
                entry = self._new_entry(module, parent, attribute)
                if wrapped:
                    entry.path = parent.path  # what is inside is named without the wrapper
            if fsdp2 and not alias:
                entry.fqn = path[len(self._prefix):] if path.startswith(self._prefix) else path
            if is_fsdp(module):
                self.has_fsdp = True
                entry.flags |= MODULE_FSDP
                entry.fsdp2 = entry.fsdp2 or fsdp2
            if _is_a(module, "CheckpointWrapper"):
                entry.flags |= MODULE_RECOMPUTE
            if _is_a(module, "DistributedDataParallel"):
                entry.flags |= MODULE_DDP
            by_path[path] = (module, entry)
            self.members.append((module, entry, alias))
        self._count_bytes()

    @staticmethod
    def _new_entry(module, parent, attribute):
        entry = Entry()
        entry.id = 0
        entry.parent = parent
        entry.path = f"{parent.path}.{attribute}" if parent is not None and parent.path else attribute
        entry.fqn = entry.path
        entry.class_name = _class_name(module)
        entry.flags = MODULE_ROOT if parent is None else 0
        entry.depth = parent.depth + 1 if parent is not None else 0
        entry.parameter_bytes = entry.buffer_bytes = 0
        entry.selected = entry.fsdp2 = False
        return entry

    def _count_bytes(self):
        members = [(module, entry) for module, entry, _ in self.members]
        for tensors, field in ((parameters(members), "parameter_bytes"), (buffers(members), "buffer_bytes")):
            seen = set()  # a shared tensor counts where it is first met
            for entry, _, tensor in tensors:
                if id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                count = size(tensor)
                while entry is not None:
                    setattr(entry, field, getattr(entry, field) + count)
                    entry = entry.parent

    def select(self):
        """Decides which entries get ranges of their own."""
        selection = options.module_selection()
        if selection == "fsdp" and not self.has_fsdp:
            selection = 2
        for module, entry, _ in self.members:
            if not takes_hooks(module) or type(module).forward is torch.nn.Module.forward:
                continue  # the latter is a container: nothing ever calls it
            entry.selected = bool(
                entry.selected
                or entry.parent is None
                or entry.flags & MODULE_FSDP
                or selection == "all"
                or (isinstance(selection, int) and entry.depth <= selection)
            )


@unseen
def register(root):
    """Walks a model, tells the ledger about its modules and remembers them. Returns the Tree."""
    global _next_id
    tree = Tree(root)
    tree.select()
    for module, entry, alias in tree.members:
        if not entry.id:
            entry.id, _next_id = _next_id, _next_id + 1
            entry.name = (entry.fqn or entry.class_name).encode("utf-8", "replace")
            native.module(entry.id, entry.parent.id if entry.parent is not None else 0,
                          entry.fqn.encode("utf-8", "replace"), entry.class_name.encode("utf-8", "replace"),
                          entry.flags, entry.depth, entry.parameter_bytes, entry.buffer_bytes)
        remember(module, entry, alias)
    return tree

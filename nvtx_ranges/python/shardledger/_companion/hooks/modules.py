"""Names of modules: one walk over a model when it is first called.

Every module gets an id and a `module` event; some are selected (SHARDLEDGER_MODULES) and get ranges of their own.

A module's name is its path in the model without the wrappers that only change how it runs: activation checkpointing,
torch.compile, DDP and FSDP1. The wrapped module is the same module to a reader, and shares the wrapper's entry.
FSDP2 units are the exception: they are named exactly as in FSDP's own ranges (`FSDP::all_gather (blocks.0)`), that is by
their full path, so that the two can be joined by name.
"""

import collections
import weakref

import torch

from ...kinds import MODULE_DDP, MODULE_FSDP, MODULE_RECOMPUTE, MODULE_ROOT
from .. import guard, native, options
from ..tensors import unseen

# {attribute that holds the wrapped module: class of the wrapper}
_WRAPPERS = {
    "_checkpoint_wrapped_module": "ActivationWrapper",
    "_orig_mod": "OptimizedModule",
    "_fsdp_wrapped_module": "FullyShardedDataParallel",
    "module": "DistributedDataParallel",
}

_BLOCKS_MAX = 512  # of a model


class Ranged(set):
    """ids of modules; the bridge knows them too."""

    def add(self, key):
        super().add(key)
        native.module_has_ranges(key)

    def discard(self, key):
        super().discard(key)
        native.module_has_no_ranges(key)

    def clear(self):
        while self:
            self.discard(next(iter(self)))


if "_known" not in globals():  # a reloaded module keeps what it knows
    _known = {}  # id(module) → Known
    ranged = Ranged()  # the modules that have ranges wherever they are called: selected ones, and what was a root
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

    __slots__ = ("module", "entry", "alias")


def find(module):
    known = _known.get(id(module))
    return known if known is not None and known.module() is module else None


def remember(module, entry=None, alias=False):
    known = find(module)
    if known is None:
        known = Known()
        known.module = weakref.ref(module, lambda _, key=id(module): _forget(key))
        _known[id(module)] = known
    known.entry, known.alias = entry, alias
    native.module_changed(id(module))
    return known


def _forget(key):
    known = _known.get(key)
    if known is not None and known.module() is None:  # else the address already belongs to another module
        del _known[key]
        ranged.discard(key)


def original(replica):
    """Of a replica, which nn.DataParallel makes for one call: it shares all tables but those of tensors and modules."""
    hooks = attributes(replica).get("_forward_hooks")
    for known in list(_known.values()):
        module = known.module()
        if module is not None and attributes(module).get("_forward_hooks") is hooks:
            return known
    return None


def attributes(module):
    """Its own, past whatever its class does when it is asked for one."""
    return object.__getattribute__(module, "__dict__")


def table(module, name):
    """The items of one of a module's tables: _modules, _parameters, _buffers."""
    found = attributes(module).get(name)
    return [] if found is None else list(found.items())


def walk(root):
    """(path, module, parent, attribute there) of all modules in the order of named_modules, and each once.

    Models have methods of their own called modules, named_modules or parameters, and may be neither hashed nor compared:
    only tables are read. What can't be read is left out.
    """
    seen, waiting = set(), [("", root, None, "")]
    while waiting:
        path, module, parent, attribute = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        try:
            inside = [(f"{path}.{name}" if path else name, child, module, name)
                      for name, child in table(module, "_modules") if child is not None]
        except Exception as error:
            left_out(module, error)
            continue
        yield path, module, parent, attribute
        waiting.extend(reversed(inside))


def left_out(module, error):
    guard.say_once("left out", f"a {type(module).__name__} can't be read and is left out ({guard.describe(error)})")


def tensors_of(root, *names):
    """All in these tables of a model, each once."""
    seen = set()
    for _, module, _, _ in walk(root):
        for name in names:
            for _, tensor in table(module, name):
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor


def parameters_of(root):
    return tensors_of(root, "_parameters")


def has_tensors(root):
    return any(True for _ in tensors_of(root, "_parameters", "_buffers"))


def _is_a(module, name):
    """By name, so that torch.distributed is not imported for jobs that do not use it."""
    return any(c.__name__ == name and c.__module__.startswith("torch.") for c in type(module).__mro__)


def is_fsdp2(module):
    return _is_a(module, "FSDPModule")


def is_megatrons(parameter):
    """It is a view of a flat buffer of Megatron-FSDP."""
    return getattr(parameter, "_megatron_fsdp_model", None) is not None


def is_fsdp(module):
    return is_fsdp2(module) or _is_a(module, "FullyShardedDataParallel")


def takes_ranges(module):
    """Scripted and traced modules are not Python inside. What they hold is known all the same."""
    return not issubclass(type(module), torch.jit.ScriptModule)


def _class_name(module):
    """The user's class: fully_shard makes a class of its own from it, wrappers hide it."""
    for attribute, wrapper in _WRAPPERS.items():
        inside = attributes(module).get("_modules")
        if inside is not None and attribute in inside and _is_a(module, wrapper):
            return _class_name(inside[attribute])
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
    try:
        tensor = local(tensor)
        return tensor.numel() * tensor.element_size()
    except Exception:  # a tensor in name only
        return 0


def fsdp_parameters(module):
    """FSDP2's own objects for the parameters of a unit."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [parameter for group in groups if group is not None for parameter in group.fsdp_params]


def _sharded_parameters(module):
    """{(module, name): parameter} of an FSDP2 unit: the shards, which its modules do not hold while it is unsharded."""
    found = {}
    try:
        for parameter in fsdp_parameters(module):
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


def roots():
    """Of the registered models that there still are."""
    found = [(known.module(), known) for known in list(_known.values())]
    return [module for module, known in found if module is not None and known.entry is not None and known.entry.parent is None and not known.alias]


def root_of(entry):
    while entry.parent is not None:
        entry = entry.parent
    return entry


def fsdp2_parameters():
    """(entry, name, FSDP2's own object) of every parameter of the units of FSDP2."""
    for module, _ in alive():
        if not is_fsdp2(module):
            continue
        for parameter in fsdp_parameters(module):
            where = parameter._module_info
            holder = find(where.module)
            if holder is not None and holder.entry is not None:
                yield holder.entry, where.param_name, parameter


def whole_gradients():
    """(entry, name, gradient) of FSDP2's gradients that are not reduced yet: of the backward that runs, and of those before where
    it reduces later."""
    try:
        for entry, name, parameter in fsdp2_parameters():
            gathered_one = getattr(parameter, "_unsharded_param", None)  # made at the first gathering
            for gradient in (getattr(gathered_one, "grad", None), parameter.unsharded_accumulated_grad):
                if gradient is not None:
                    yield entry, name, gradient
    except AttributeError:  # another version's names: then nothing is known of them
        pass


def parameters_with_modules(members):
    """(module, entry, name, parameter) of each parameter of [(module, entry)]; FSDP2's as shards, also while unsharded."""
    sharded = {}
    for module, _ in members:
        if is_fsdp2(module):
            sharded.update(_sharded_parameters(module))
    for module, entry in members:
        for name, parameter in table(module, "_parameters"):
            parameter = sharded.get((id(module), name), parameter)
            if parameter is not None:
                yield module, entry, name, parameter


def parameters(members):
    return ((entry, name, parameter) for _, entry, name, parameter in parameters_with_modules(members))


def buffers(members):
    for module, entry in members:
        for name, buffer in table(module, "_buffers"):
            if buffer is not None:
                yield entry, name, buffer


def members(root):
    """[(module, entry)] of a registered model's modules."""
    found = ((module, find(module)) for _, module, _, _ in walk(root))
    return [(module, known.entry) for module, known in found if known is not None and known.entry is not None]


def give_ranges(root):
    """To a module that is called, and to those selected in it."""
    for module, entry in members(root):
        if entry.selected:
            ranged.add(id(module))
    ranged.add(id(root))


class Tree:
    """One walk: `members` lists (module, entry, alias) in the order of named_modules; alias: wrapped by the entry's own."""

    def __init__(self, root):
        self.members = []
        self.has_fsdp = False
        self._prefix = ""  # of paths below a root that is itself a wrapper, which FSDP does not know
        self._lists = set()  # ids of the entries of ModuleLists and Sequentials
        entries = {}  # id(module) → its entry
        for path, module, parent, attribute in walk(root):
            if parent is not None and id(parent) not in entries:
                continue
            try:
                entries[id(module)] = self._add(path, module, parent, entries.get(id(parent)), attribute)
            except Exception as error:
                left_out(module, error)
        self._count_bytes()

    def _add(self, path, module, parent_module, parent, attribute):
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
        if issubclass(type(module), (torch.nn.ModuleList, torch.nn.Sequential)):
            self._lists.add(id(entry))
        self.members.append((module, entry, alias))
        return entry

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
        blocks = ()
        if selection == "fsdp" and not self.has_fsdp:
            selection = 2
            blocks = self._blocks()
        for module, entry, _ in self.members:
            if not takes_ranges(module) or type(module).forward is torch.nn.Module.forward:
                continue  # the latter is a container: nothing ever calls it
            entry.selected = bool(
                entry.selected
                or entry.parent is None
                or entry.flags & MODULE_FSDP
                or selection == "all"
                or (isinstance(selection, int) and entry.depth <= selection)
                or id(entry) in blocks
            )

    def _blocks(self):
        """ids of the entries of what a model is made of, however deep: modules of the same class in a list, and what is
        checkpointed. Nothing inside of a block is one, and a list that goes beyond the limit has none."""
        entries = [entry for _, entry, alias in self.members if not alias and entry.parent is not None]
        alike = collections.Counter((id(entry.parent), entry.class_name) for entry in entries
                                    if id(entry.parent) in self._lists and entry.parameter_bytes)
        by_parent, inside = {}, set()
        for entry in entries:
            if id(entry.parent) in inside:
                inside.add(id(entry))
            elif entry.flags & MODULE_RECOMPUTE or alike[id(entry.parent), entry.class_name] > 1:
                inside.add(id(entry))
                by_parent.setdefault(id(entry.parent), []).append(id(entry))
        found = set()
        for blocks in by_parent.values():
            if len(found) + len(blocks) <= _BLOCKS_MAX:
                found.update(blocks)
        return found


@unseen
def register(root):
    """Walks a model, tells the ledger about its modules and remembers them. Returns the Tree, or None for a root that can't
    be read: it is remembered as one that holds nothing."""
    global _next_id
    try:
        tree = Tree(root)
        tree.select()
    except Exception as error:
        left_out(root, error)
        remember(root)
        return None
    for module, entry, alias in tree.members:
        if not entry.id:
            entry.id, _next_id = _next_id, _next_id + 1
            entry.name = (entry.fqn or entry.class_name).encode("utf-8", "replace")
            native.module(entry.id, entry.parent.id if entry.parent is not None else 0,
                          entry.fqn.encode("utf-8", "replace"), entry.class_name.encode("utf-8", "replace"),
                          entry.flags, entry.depth, entry.parameter_bytes, entry.buffer_bytes)
        remember(module, entry, alias)
    return tree

"""Tags: which allocation holds which tensor. The address is that of the storage, which the allocator handed out."""

import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import compiling, guard, native
from ..hooks import modules
from ..tensors import is_made, leaves, unseen

DEVICES = {"cuda"}  # the ledger's devices

if "held" not in globals():  # a reloaded module keeps what it tagged
    held = {}  # what was tagged where: (id of the entry, tensor's name) → Held
    _named = {}  # id(parameter) → (weak reference, name, module id)


class Held:
    """The memory that a tensor had."""

    __slots__ = ("storage", "cdata", "address")

    def __init__(self, storage):
        self.storage = StorageWeakRef(storage)  # while there is one, no other storage has its number
        self.cdata = self.storage.cdata
        self.address = storage.data_ptr()

    def is_of(self, storage):
        return self.cdata == storage._cdata and self.address == storage.data_ptr()


def storage_of(tensor):
    """A tensor's storage on a device of the ledger, or None where there is nothing to tag."""
    try:
        tensor = modules.local(tensor)
        if not isinstance(tensor, torch.Tensor) or tensor.device.type not in DEVICES:
            return None
        storage = tensor.untyped_storage()
        return storage if storage.device.type in DEVICES and storage.data_ptr() else None  # a fake tensor's is elsewhere
    except Exception:  # tensors without a storage: fake, functional and other wrappers; and tensors in name only
        return None


def address_of(tensor):
    """(device index, address) of a tensor's storage, which is what a tag names."""
    storage = storage_of(tensor)
    return None if storage is None else (storage.device.index or 0, storage.data_ptr())


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def hold(tensor):
    storage = storage_of(tensor)
    return None if storage is None else Held(storage)


def tag(tensor, category, module, name):
    storage = storage_of(tensor)
    if storage is not None:
        _tag_storage(storage, category, module, name)


def _tag_storage(storage, category, module, name):
    native.tag(storage.device.index or 0, storage.data_ptr(), category.encode("utf-8", "replace"), module,
               name.encode("utf-8", "replace"))


@unseen
def is_on_device(tensor):
    return address_of(tensor) is not None


@compiling.hidden
@unseen
def tag_by_user(tensor, category, name=""):
    try:
        tag(tensor, str(category), 0, str(name))
    except Exception as error:
        guard.say_once("tag", f"a tag was not set ({guard.describe(error)})")


def _is_sharded(parameter, entry):
    """FSDP's: a DTensor in a model with FSDP2, or a flat parameter of FSDP1."""
    while entry is not None:
        if entry.flags & modules.MODULE_FSDP:
            return modules.local(parameter) is not parameter or not entry.fsdp2
        entry = entry.parent
    return False


@unseen
def model(root, only_new=False):
    """Tags the parameters and buffers of a registered model; those that are where they were are left alone. Returns where its
    parameters are found: (weak reference to a module or a parameter, name in the module or None, key of what is held), and all
    such keys.

    only_new: also those that another model has; the first one keeps them.
    """
    members = modules.members(root)
    taken = _storages_of_others(members) if only_new else ()
    places = []
    for module, entry, name, parameter in modules.parameters_with_modules(members):
        is_megatrons = modules.is_megatrons(parameter)  # its buffers have the tags
        sharded = is_megatrons or _is_sharded(parameter, entry)
        full_name = f"{entry.path}.{name}" if entry.path else name
        key = entry.id, full_name
        is_taken = bool(taken) and address_of(parameter) in taken
        if not is_taken:
            _named[id(parameter)] = (weakref.ref(parameter), full_name, entry.nearest_selected().id, sharded)
        category = None if is_taken or is_megatrons else "sharded_param" if sharded else "param"
        _tag_once(entry, full_name, parameter, category)
        is_fsdps = sharded and modules.local(parameter) is not parameter  # its module holds another one while it is gathered
        places.append((weakref.ref(parameter), None, key) if is_fsdps else (weakref.ref(module), name, key))
    keys = [key for *_, key in places]
    for entry, name, buffer in modules.buffers(members):
        is_taken = bool(taken) and address_of(buffer) in taken
        full_name = f"{entry.path}.{name}" if entry.path else name
        _tag_once(entry, full_name, buffer, None if is_taken else "buffer")
        keys.append((entry.id, full_name))
    return places, keys


@unseen
def not_called_yet(root):
    """Tags a model of which nothing is registered, for whoever asks before its first call. That gives it its modules: registered
    earlier it might get another root than FSDP's own ranges take for one."""
    members = [(part, path) for path, part, _, _ in modules.walk(root)]
    if any(modules.find(part) is not None for part, _ in members):
        return
    is_sharded = any(modules.is_fsdp2(part) for part, _ in members)
    for _, path, name, parameter in modules.parameters_with_modules(members):
        category = "sharded_param" if is_sharded and modules.local(parameter) is not parameter else "param"
        tag(parameter, category, 0, f"{path}.{name}" if path else name)
    for path, name, buffer in modules.buffers(members):
        tag(buffer, "buffer", 0, f"{path}.{name}" if path else name)


def _storages_of_others(members):
    """Of the tensors that the known models hold now, without these modules: a dead model's addresses are others' by now."""
    own = {id(module) for module, _ in members}
    others = [(module, entry) for module, entry in modules.alive() if id(module) not in own]
    theirs = [tensor for found in (modules.parameters(others), modules.buffers(others)) for _, _, tensor in found]
    return {address_of(tensor) for tensor in theirs} - {None}


@unseen
def gathered():
    """Names what FSDP2 keeps gathered between steps, such as the root of a model that is only evaluated."""
    try:
        for entry, name, parameter in modules.fsdp2_parameters():
            if parameter.sharded_state.name == "UNSHARDED":
                _tag_in(entry, name, parameter._unsharded_param, "unsharded_param")
    except AttributeError:  # another version's names: then it has no names here either
        pass


@unseen
def whole_gradients():
    for entry, name, gradient in modules.whole_gradients():
        _tag_in(entry, name, gradient, "unsharded_grad")


def _tag_in(entry, name, tensor, category):
    tag(tensor, category, entry.nearest_selected().id, f"{entry.path}.{name}" if entry.path else name)


def _tag_once(entry, name, tensor, category):
    """category: None where the tag is another model's."""
    storage = storage_of(tensor)
    if storage is None:
        held.pop((entry.id, name), None)
        return
    known = held.get((entry.id, name))
    if known is None or not known.is_of(storage):
        held[entry.id, name] = Held(storage)
        if category:
            _tag_storage(storage, category, entry.nearest_selected().id, name)


@unseen
def inputs(entry, args, kwargs):
    """The tensors that a root was called with, after FSDP brought them to the device."""
    for leaf in leaves((args, kwargs)):
        if not is_made(leaf):
            tag(leaf, "input", entry.id, "")


def is_named(parameter):
    """It belongs to a model that was called."""
    known = _named.get(id(parameter))
    return known is not None and known[0]() is parameter


def _owner(parameter):
    known = _named.get(id(parameter))
    return known[1:] if known is not None and known[0]() is parameter else ("", 0, False)


def _gradients_of(optimizer):
    try:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        return [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    except Exception as error:
        _left_out(optimizer, error)
        return []


def _state_of(optimizer):
    """[(parameter, key, tensor)]; some keep their state another way."""
    try:
        state = optimizer.state
        return [(parameter, str(key), value) for parameter, values in (list(state.items()) if isinstance(state, dict) else ())
                if isinstance(values, dict) for key, value in list(values.items()) if isinstance(value, torch.Tensor)]
    except Exception as error:
        _left_out(optimizer, error)
        return []


def _left_out(optimizer, error):
    guard.say_once("optimizer", f"what a {type(optimizer).__name__} holds can't be read and has no tags ({guard.describe(error)})")


@unseen
def gradients(optimizer):
    seen = set()  # FSDP's gradients of one unit are views of one storage
    for parameter, gradient in _gradients_of(optimizer):
        where = address_of(gradient)
        if where is not None and where not in seen:
            seen.add(where)
            gradient_of(parameter, gradient)


def gradient_of(parameter, gradient):
    name, module, sharded = _owner(parameter)
    tag(gradient, "sharded_grad" if sharded else "gradient", module, name)


@unseen
def optimizer_state(optimizer):
    """Tags the state; returns how many tensors there are."""
    found = _state_of(optimizer)
    for parameter, key, value in found:
        name, module, _ = _owner(parameter)
        tag(value, "optstate", module, f"{name}.{key}" if name else key)
    return len(found)


def count_of_state(optimizer):
    return len(_state_of(optimizer))

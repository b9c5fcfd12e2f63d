"""What predictions need to know of parameters: shapes, types, how they are split over ranks, units of FSDP2, and the groups
that optimizers step.

Told once: of a model when it is registered, of an optimizer when it has its first step. Only attributes are read; where
torch's private names differ, less is told.
"""

import weakref

from ...kinds import PARAMETER_OFFLOADED, PARAMETER_TRAINED, UNIT_OFFLOADED
from .. import compiling, guard, native
from ..hooks import modules
from ..tensors import unseen

_SETTINGS = ("foreach", "fused", "capturable", "amsgrad", "differentiable", "maximize", "momentum", "nesterov", "weight_decay")

if "_numbers" not in globals():  # a reloaded module goes on counting
    _numbers = {}  # id(parameter) → (weak reference, its number)
    _last = 0
    _optimizers = {}  # id of the optimizer's ranges → what was told of its groups


def _text(value):
    return str(value).removeprefix("torch.").encode("utf-8", "replace")


def _shape(tensor):
    return "x".join(str(int(size)) for size in tensor.shape)


def _placement(parameter):
    """S0/8 R/2: of a DTensor, for each dimension of its mesh."""
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return ""
    words = []
    for place, size in zip(parameter.placements, mesh.shape):
        word = f"S{place.dim}" if place.is_shard() else "R" if place.is_replicate() else type(place).__name__
        words.append(f"{word}/{size}")
    return " ".join(words)


def number_of(parameter):
    """0: of no model that is known."""
    known = _numbers.get(id(parameter))
    return known[1] if known is not None and known[0]() is parameter else 0


def _number(parameter):
    global _last
    number = number_of(parameter)
    if not number:
        _last = number = _last + 1
        _numbers[id(parameter)] = weakref.ref(parameter, lambda gone, key=id(parameter): _forget(key, gone)), number
    return number


def _forget(key, gone):
    if key in _numbers and _numbers[key][0] is gone:
        del _numbers[key]


def _kept_ranks(state, group, is_root):
    """Over how many ranks a unit is split after forward."""
    info = group.post_forward_mesh_info
    if info is None or (is_root and getattr(state, "_auto_reshard_after_forward", None)):
        return 1
    return info.shard_mesh_size


def _unit(entry, module, is_root):
    """Tells one unit; returns {id(its shard): place in it}."""
    state = module._get_fsdp_state()
    groups = [g for g in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group] if g is not None]
    if not groups:
        return {}
    group, info = groups[0], groups[0].mesh_info
    policy = group.mp_policy
    native.fsdp_unit(entry.id, getattr(info, "shard_mesh_size", 1), getattr(info, "replicate_mesh_size", 1),
                     _kept_ranks(state, group, is_root if state._is_root is None else state._is_root),
                     _text(policy.param_dtype or ""), _text(policy.reduce_dtype or ""), len(groups),
                     UNIT_OFFLOADED if type(group.offload_policy).__name__ == "CPUOffloadPolicy" else 0)
    return {id(p.sharded_param): place for place, p in enumerate(p for g in groups for p in g.fsdp_params)}


def _is_inside(entry, units):
    while entry.parent is not None:
        entry = entry.parent
        if entry.id in units:
            return True
    return False


def _units(members):
    """{id(shard): (its unit's id, place in it)}"""
    found, told = {}, set()
    for module, entry in members:
        if not modules.is_fsdp2(module) or entry.id in told:
            continue
        try:
            places = _unit(entry, module, not _is_inside(entry, told))
        except AttributeError as error:  # private, so another version's names may differ
            guard.say_once("units", f"how units of FSDP2 are sharded is not recorded ({guard.describe(error)})")
            return {}
        told.add(entry.id)
        for shard, place in places.items():
            found.setdefault(shard, (entry.id, place))
    return found


@unseen
def model(members):
    """Of a model's [(module, entry)], as they were registered."""
    units = _units(members)
    for _, entry, name, parameter in modules.parameters_with_modules(members):
        try:
            if number_of(parameter):
                continue  # tied to one that was told, or another model's
            own = modules.local(parameter)
            unit, place = units.get(id(parameter), (0, 0))
            flags = PARAMETER_TRAINED * bool(parameter.requires_grad)
            flags |= PARAMETER_OFFLOADED * (own.device.type == "cpu")
            native.parameter(_number(parameter), entry.id, unit, place, _text(f"{entry.path}.{name}" if entry.path else name),
                             _text(parameter.dtype), _text(_shape(parameter)), _text(_shape(own)),
                             _text(_placement(parameter)), flags)
        except Exception as error:  # a parameter in name only, or a lazy one
            guard.say_once("parameters", f"not all parameters are recorded ({guard.describe(error)})")


def _ranges(numbers):
    """1-148,150,?"""
    parts, at = [], 0
    while at < len(numbers):
        end = at
        while end + 1 < len(numbers) and numbers[at] and numbers[end + 1] == numbers[end] + 1:
            end += 1
        first, last = numbers[at], numbers[end]
        parts.append("?" if not first else str(first) if first == last else f"{first}-{last}")
        at = end + 1
    return ",".join(parts)


@compiling.hidden
@unseen
def optimizer(optimizer, number):
    """Its groups, unless they were told as they are."""
    try:
        groups = [(" ".join(f"{key}={group[key]}" for key in _SETTINGS if key in group),
                   _ranges([number_of(parameter) for parameter in group["params"]]), len(group["params"]))
                  for group in optimizer.param_groups]
    except Exception:  # one that keeps them another way
        return
    if _optimizers.get(number) == groups:
        return
    _optimizers[number] = groups
    name = _text(type(optimizer).__name__)
    for place, (settings, parameters, count) in enumerate(groups):
        native.optimizer(number, place, name, _text(settings), _text(parameters), count)

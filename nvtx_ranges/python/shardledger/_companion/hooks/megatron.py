"""Megatron-FSDP (`megatron_fsdp`, also inside of Megatron-Core): the flat buffers that stand for parameters and gradients.

Its parameters are views: between steps of a buffer with this rank's part of a unit, within a model's call of a bucket that is
gathered, freed and allocated again all the time. So buffers are tagged instead of parameters, where the model is: what
stays with the model's other tags (tags.py), and a bucket where it is allocated, by a wrapper around the one method that does.
The gradients that the optimizer reads are copies in the precision of the main weights, made anew in each step; they are tagged
as the method that makes them ends.
"""

import functools
import sys
import weakref

from .. import compiling, guard, imports
from ..compiling import is_traced
from ..tagging import tags
from ..tensors import unseen

_MODULES = ("megatron_fsdp.param_and_grad_buffer",
            "megatron.core.distributed.fsdp.src.megatron_fsdp.param_and_grad_buffer")

# The buffers of a group of parameters: (attribute, category of what stays, of a whole bucket, of a part of one)
_WEIGHTS = "sharded_param", "unsharded_param", "all_gather"
_GRADIENTS = "sharded_grad", "unsharded_grad", "reduce_scatter"
_BUFFERS = {
    "model_weight_buffer": _WEIGHTS, "transpose_weight_buffer": _WEIGHTS, "main_weight_buffer": _WEIGHTS,
    "hfsdp_helper_wbuf": _WEIGHTS, "hfsdp_helper_wtbuf": _WEIGHTS,
    "main_grad_buffer": _GRADIENTS, "hfsdp_helper_gbuf": _GRADIENTS,
}  # fmt: skip

if "_buckets" not in globals():  # a reloaded module keeps what it knows
    _buckets = weakref.WeakKeyDictionary()  # buffer → (category of a whole bucket, of a part, module's id, name)


def tag(members):
    """The buffers of a registered model; [(module, entry)] are its modules."""
    for module, entry in members:
        if type(module).__name__ == "MegatronFSDP":
            try:
                _tag_buffers(module, entry, members)
            except AttributeError:  # another version's names: then they have no tags
                pass


def _tag_buffers(module, entry, members):
    by_path = {inner.path: inner for _, inner in members}
    whole = module.param_and_grad_buffer
    inside = f"{entry.path}.module" if entry.path else "module"
    for group in whole.parameter_groups:
        owner = _owner([whole.param_to_name[parameter] for parameter in group.params], inside, by_path) or entry
        for attribute, (stays, bucket, part) in _BUFFERS.items():
            buffer = getattr(group, attribute, None)
            if buffer is None:
                continue
            number, name = owner.nearest_selected().id, f"{owner.path}.{attribute}"
            tags.tag(getattr(buffer, "data", None), stays if buffer.is_data_distributed else bucket, number, name)
            _buckets[buffer] = bucket, part, number, name


def _owner(names, inside, by_path):
    """The innermost module around all of these parameters."""
    paths = [f"{inside}.{name}".split(".")[:-1] for name in names]
    common = paths[0]
    for path in paths[1:]:
        same = [a == b for a, b in zip(common, path)] + [False]
        common = common[:same.index(False)]
    while common and ".".join(common) not in by_path:
        common = common[:-1]
    return by_path.get(".".join(common))


def _tagged(allocate):
    @functools.wraps(allocate)
    def wrapper(self, *args, **kwargs):
        if is_traced() or not guard.on:
            return allocate(self, *args, **kwargs)
        before = _address_of_bucket(self)
        bucket = allocate(self, *args, **kwargs)
        _tag_bucket(self, bucket, before, bool(args[0] if args else kwargs.get("shard", False)))
        return bucket

    wrapper._is_shardledgers = True
    return compiling.skipped(wrapper)


def _address_of_bucket(buffer):
    """0 where there is none yet."""
    try:
        return buffer.temporary_bucket_allocator.buckets[buffer.bucket_index.bucket_id].data.untyped_storage().data_ptr()
    except Exception:  # none of this number, or an allocator of another kind
        return 0


@compiling.hidden
@guard.guarded
@unseen
def _tag_bucket(buffer, bucket, before, is_part):
    known = _buckets.get(buffer)
    storage = tags.storage_of(getattr(bucket, "data", None)) if known is not None else None
    if storage is not None and storage.data_ptr() != before:
        whole, part, number, name = known
        tags.tag(bucket.data, part if is_part else whole, number, name)


def _with_gradients(update):
    @functools.wraps(update)
    def wrapper(self, *args, **kwargs):
        result = update(self, *args, **kwargs)
        if not is_traced() and guard.on:
            _tag_main_gradients(self)
        return result

    wrapper._is_shardledgers = True
    return compiling.skipped(wrapper)


@compiling.hidden
@guard.guarded
@unseen
def _tag_main_gradients(whole):
    buffers = {tags.address_of(group.main_grad_buffer.data) for group in whole.parameter_groups if group.main_grad_buffer is not None}
    for _, parameter in whole.optimizer_named_parameters:
        gradient = parameter.grad
        if gradient is not None and tags.address_of(gradient) not in buffers:
            tags.gradient_of(parameter, gradient)


_WRAPPERS = (("DataParallelBuffer", "allocate_bucket_storage", _tagged), ("ParamAndGradBuffer", "update_main_grads", _with_gradients))


def _wrap(name):
    for class_name, method_name, wrapped in _WRAPPERS:
        kind = getattr(sys.modules[name], class_name, None)
        method = vars(kind).get(method_name) if isinstance(kind, type) else None
        if callable(method) and hasattr(method, "__code__") and not hasattr(method, "_is_shardledgers"):
            setattr(kind, method_name, wrapped(method))


def install():
    for name in _MODULES:
        if name in sys.modules:
            _wrap(name)
        else:
            imports.when_imported(name, functools.partial(_wrap, name))

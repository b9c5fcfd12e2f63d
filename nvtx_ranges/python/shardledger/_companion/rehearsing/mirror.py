"""Puts a process group whose other ranks are copies of this one in the places of NCCL's and Gloo's.

Only the two constructors are replaced, and what would wait for other processes: stores, and a few functions on Python
objects. All else of torch.distributed (groups, device meshes, backends by device, the names of it all) is torch's own, so a
program finds what it expects: get_backend() says nccl. mirror_group.cpp is the group itself, and says what each collective
returns.
"""

import contextlib
import ctypes
import functools
import inspect
import os
import pickle
import sys
import time

import torch

from . import rehearsal

_C10D = "torch.distributed.distributed_c10d"
_CLASSES = {"ProcessGroupNCCL": "nccl", "ProcessGroupGloo": "gloo"}
_PATIENCE = 5  # seconds that a key may take to come, from another thread of this process

if "_library" not in globals():  # a reloaded module keeps what it started
    _library = None
    _callbacks = ()  # ctypes' functions, which live as long as the process
    _broadcasts = 0  # of objects
    _stores = []  # Python's half of a store lives as long as somebody holds it here


def build():
    """Path of the compiled group."""
    from ..allocations import compiler

    return compiler.build(compiler.MIRROR)


def build_ahead():
    """What fails is said when the group is needed."""
    with contextlib.suppress(Exception):
        build()


def load():
    global _library, _callbacks
    if _library is not None:
        return
    from ..allocations import compiler

    try:
        path = build()
        torch.ops.load_library(path)
    except (compiler.Unavailable, OSError, RuntimeError) as error:
        rehearsal.refuse(f"its process group has to be compiled, and that failed: {error}")
    refused = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(
        lambda text: rehearsal.note_refusal(text.decode("utf-8", "replace")))
    used = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_int)(rehearsal.tell_group)
    _callbacks = refused, used
    _library = ctypes.CDLL(path)
    _library.slm_on_refusal(refused)
    _library.slm_on_use(used)


def make(word, store, rank, size):
    """A backend by that name. A ProcessGroup brings it over from C++ and is let go."""
    load()
    group = torch._C._distributed_c10d.ProcessGroup(store, rank, size)
    torch.ops.shardledger_rehearsal.put_mirror(group.boxed(), word)
    return group._get_backend(torch.device("cpu"))


def _stand_in(real, word):
    """A class that is called like the real one, is one to isinstance, and has its options; what it makes is our backend."""

    class Kind(type):
        def __call__(cls, store, rank, size, *_, **__):
            return make(word, store, rank, size)

        def __instancecheck__(cls, instance):
            if isinstance(instance, real):
                return True
            return type(instance) is torch._C._distributed_c10d.Backend and instance.name() == word

        def __getattr__(cls, name):
            return getattr(real, name)

    return Kind(real.__name__, (), {"__module__": real.__module__, "__doc__": real.__doc__})


def _complete(backend, options):
    """What NCCL's backend has beyond every backend's, where it means nothing without others."""
    silent = ("_set_default_timeout", "_add_ephemeral_timeout", "perform_nocolor_split", "register_mem_pool",
              "deregister_mem_pool", "_group_start", "_group_end", "_shutdown", "eager_connect_single_device",
              "_enable_collectives_timing")
    for name in silent:
        if not hasattr(backend, name):
            setattr(backend, name, lambda self, *_, **__: None)
    for name, value in (("comm_split_count", 0), ("_is_initialized", True), ("get_error", None)):
        if not hasattr(backend, name):
            setattr(backend, name, lambda self, *_, value=value, **__: value)
    if not hasattr(backend, "uid"):
        backend.uid = property(lambda self: 0)
    if options is not None and not hasattr(backend, "options"):
        backend.options = property(lambda self: options())


class Store(torch._C._distributed_c10d.Store):
    """A store of this process alone. What all ranks add, N add; a key that nobody here sets is another rank's."""

    def __init__(self):
        super().__init__()
        self._own = torch._C._distributed_c10d.HashStore()
        _stores.append(self)

    def set(self, key, value):
        return self._own.set(key, value)

    def get(self, key):
        self._await([key])
        return self._own.get(key)

    def compare_set(self, key, expected, desired):
        return self._own.compare_set(key, expected, desired)

    def add(self, key, amount):
        return self._own.add(key, amount * rehearsal.plan.world)

    def check(self, keys):
        return self._own.check(keys)

    def wait(self, keys, timeout=None):
        self._await(keys)

    def delete_key(self, key):
        return self._own.delete_key(key)

    def num_keys(self):
        return self._own.num_keys()

    def append(self, key, value):
        return self._own.append(key, value)

    def multi_get(self, keys):
        self._await(keys)
        return self._own.multi_get(keys)

    def multi_set(self, keys, values):
        return self._own.multi_set(keys, values)

    def has_extended_api(self):
        return True

    def clone(self):
        return self

    def _await(self, keys):
        deadline = time.monotonic() + _PATIENCE
        while not self._own.check(keys):
            if time.monotonic() > deadline:
                missing = next(key for key in keys if not self._own.check([key]))
                rehearsal.refuse(f"the program waits for the key {missing} of a store of torch.distributed, which another rank "
                                 "sets")
            time.sleep(0.01)


def _make_store(real):
    def store(*arguments, **options):
        # The launcher's own is real: it speaks with its workers.
        return real(*arguments, **options) if _is_launching() else Store()

    return functools.wraps(real, updated=())(store)


def _is_launching():
    launchers = sys.modules.get(f"{__package__}.launchers")
    return launchers is not None and launchers.is_launching


def replace_stores():
    import torch.distributed as distributed

    for name in ("TCPStore", "FileStore"):
        if hasattr(distributed, name):
            setattr(distributed, name, _make_store(getattr(distributed, name)))


def _rendezvous(*_, **__):
    yield Store(), rehearsal.plan.rank, rehearsal.plan.world


def _place(real):
    """init_process_group without a rendezvous: the place is the rehearsal's, whatever the program says of it."""
    signature = inspect.signature(real)

    @functools.wraps(real)
    def init_process_group(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        said = bound.arguments
        words = str(said.get("backend") or "undefined").lower()
        if words == "fake":  # the program pretends by itself
            return real(*args, **kwargs)
        unknown = {word.rpartition(":")[2] for word in words.split(",")} - {"nccl", "gloo", "undefined"}
        if unknown:
            rehearsal.refuse(f"init_process_group asks for the backend {sorted(unknown)[0]}; nccl and gloo can be rehearsed")
        for name, value in (("rank", rehearsal.plan.rank), ("world_size", rehearsal.plan.world)):
            if said.get(name) not in (None, -1, value):
                rehearsal.say(f"init_process_group says {name}={said[name]}; the rehearsal's is {value}")
            said[name] = value
        said.pop("init_method", None)
        said["store"] = Store()
        load()
        _attach()
        return real(*bound.args, **bound.kwargs)

    return init_process_group


def _attach():
    """Steps are counted by the companion, which is to be there also where CUDA comes later. Not where the user keeps it away."""
    if os.environ.get("SHARDLEDGER_PYTHON") == "off":
        return
    from ..attach import attach

    attach()


def _split_group(new_group):
    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None):
        if not split_ranks:
            raise ValueError("split_ranks cannot be None or empty")
        import torch.distributed as distributed

        parent = parent_pg if parent_pg is not None else distributed.group.WORLD
        everybody = distributed.get_process_group_ranks(parent)
        own = distributed.get_rank(parent)
        mine = next((ranks for ranks in split_ranks if own in ranks), None)
        if mine is None:
            return None
        return new_group([everybody[rank] for rank in mine], timeout=timeout, pg_options=pg_options, group_desc=group_desc)

    return split_group


def _root(args, kwargs, place, group_place, group_src_place):
    """The root of a call in ranks of its group; own: whether that is this rank."""
    import torch.distributed as distributed

    def at(index, name):
        return args[index] if len(args) > index else kwargs.get(name)

    group = at(group_place, "group")
    in_group = at(group_src_place, "group_src")
    src = at(place, "src")
    own = distributed.get_rank(group) if in_group is not None else distributed.get_rank()
    return in_group if in_group is not None else src if src is not None else 0, own


def _broadcast_objects(real):
    """What a rank says that was rehearsed before, by the same command, is known to those after it; they count its calls."""

    @functools.wraps(real)
    def broadcast_object_list(object_list, *args, **kwargs):
        global _broadcasts
        root, own = _root(args, kwargs, 0, 1, 3)
        _broadcasts += 1
        if root == own:
            _keep_said(_broadcasts, root, object_list)
            return real(object_list, *args, **kwargs)
        said = _read_said(_broadcasts, root, len(object_list))
        if said is not None:
            object_list[:] = said
        elif any(entry is None for entry in object_list):
            rehearsal.say(f"broadcast_object_list: what rank {root} says is not known to rank {own}, whose list stays; rehearse "
                          f"--rank {root} before it")
        return None

    return broadcast_object_list


def _keep_said(number, root, objects):
    try:
        with open(rehearsal.said_file(number), "wb") as file:
            pickle.dump((root, objects), file)
    except Exception as error:  # what can't be kept is not known later, and then said
        rehearsal.say(f"broadcast_object_list: not kept for other ranks ({type(error).__name__}: {error})")


def _read_said(number, root, count):
    """None where nobody said that."""
    try:
        with open(rehearsal.said_file(number), "rb") as file:
            by, objects = pickle.load(file)
    except Exception:  # not rehearsed before, or of classes that are not here
        return None
    return objects if by == root and len(objects) == count else None


def _scatter_objects(real):
    @functools.wraps(real)
    def scatter_object_list(outputs, inputs=None, *args, **kwargs):
        root, own = _root(args, kwargs, 0, 1, 2)
        if root == own:
            return real(outputs, inputs, *args, **kwargs)
        if not inputs:
            rehearsal.refuse(f"scatter_object_list wants an object of rank {root}, which only that rank knows")
        outputs[0] = inputs[own]
        return None

    return scatter_object_list


def _receive_objects(*_, **__):
    rehearsal.refuse("recv_object_list wants an object of another rank, which only that rank knows")


def _log_less(real):
    """DDP's logger takes every group that says gloo for a ProcessGroupGloo, and reads members that ours has not."""

    @functools.wraps(real)
    def set_construction_data_and_log(*args, **kwargs):
        if not any(group.name() == "gloo" for group in sys.modules[_C10D]._world.pg_map):
            real(*args, **kwargs)

    return set_construction_data_and_log


def install():
    """As soon as torch.distributed.distributed_c10d is imported, before anybody takes a name from it."""
    c10d = sys.modules[_C10D]
    options = getattr(getattr(c10d, "ProcessGroupNCCL", None), "Options", None)
    for name, word in _CLASSES.items():
        if hasattr(c10d, name):
            setattr(c10d, name, _stand_in(getattr(c10d, name), word))
    _complete(torch._C._distributed_c10d.Backend, options)
    logger = torch._C._distributed_c10d.Logger
    logger.set_construction_data_and_log = _log_less(logger.set_construction_data_and_log)
    c10d.rendezvous = sys.modules["torch.distributed.rendezvous"].rendezvous = _rendezvous
    c10d.init_process_group = _place(c10d.init_process_group)
    c10d._store_based_barrier = lambda *_, **__: None
    c10d._create_process_group_wrapper = lambda wrapped_pg, *_, **__: wrapped_pg
    if hasattr(c10d, "split_group"):
        c10d.split_group = _split_group(c10d.new_group)
    c10d.broadcast_object_list = _broadcast_objects(c10d.broadcast_object_list)
    c10d.scatter_object_list = _scatter_objects(c10d.scatter_object_list)
    if hasattr(c10d, "recv_object_list"):
        c10d.recv_object_list = _receive_objects

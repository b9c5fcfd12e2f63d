"""Facts about the process: versions, the allocator's configuration, and the rank once there is one."""

import os
import sys

import torch

from . import guard, native

if "_ranked" not in globals():  # a reloaded module has told it already
    _ranked = False
    _processors_told = False
    _limits = {}  # device → the share of it that the allocator may have, as it was told
    _limit_changes = 0


def info(key, value):
    if value is not None:
        native.info(key.encode(), str(value).encode("utf-8", "replace"))


def allocator_backend():
    """uncached: whatever the backend, PYTORCH_NO_CUDA_MEMORY_CACHING turns its cache off."""
    uncached = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0")
    return "uncached" if uncached else torch.cuda.get_allocator_backend()


def _as_recorded(path):
    """As call stacks spell it: relative where it is below the working directory."""
    return path.removeprefix(os.path.join(os.getcwd(), ""))


def process():
    info("torch_version", torch.__version__)
    info("torch_directory", _as_recorded(os.path.dirname(torch.__file__)))
    info("cuda_version", torch.version.cuda)
    info("python_version", sys.version.split()[0])
    if torch.version.cuda:
        try:
            info("nccl_version", ".".join(map(str, torch.cuda.nccl.version())))
        except Exception:  # a torch without NCCL
            pass
        info("allocator_backend", allocator_backend())
    # Newer versions read the first, all of them the second.
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if variable in os.environ:
            info("allocator_config", os.environ[variable])
            break
    for key, variable in (("rank", "RANK"), ("world_size", "WORLD_SIZE"), ("local_rank", "LOCAL_RANK")):
        info(key, os.environ.get(variable))


def ranks():
    """What torch.distributed says, which is right also where no launcher set the environment; once."""
    global _ranked
    if _ranked:
        return
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        _ranked = True
        info("rank", distributed.get_rank())
        info("world_size", distributed.get_world_size())
        info("backend", distributed.get_backend())
    if torch.cuda.is_initialized():  # is_available would call CUDA, and so spoil it for workers that are forked later
        info("device", torch.cuda.current_device())


def device():
    """What the device has, and how much of it the allocator may take (set_per_process_memory_fraction), whenever that changed."""
    try:
        if torch.cuda.is_initialized():
            _tell_device(torch.cuda.current_device())
    except Exception as error:  # a device that fails, which the program will hear of itself
        guard.say_once("device", f"what the device has is not recorded ({guard.describe(error)})")


def _tell_device(index):
    global _processors_told, _limit_changes
    if not _processors_told:
        _processors_told = True
        properties = torch.cuda.get_device_properties(index)
        info("multiprocessors", properties.multi_processor_count)
        info("multiprocessor_threads", getattr(properties, "max_threads_per_multi_processor", None))
        if hasattr(properties, "pci_bus_id"):  # older torch has it not
            info("pci_bus_id", f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0")
    read = getattr(torch._C, "_cuda_getMemoryFraction", None)  # since torch 2.8
    share = read(index) if read is not None else 1.0
    if share == _limits.get(index, 1.0):
        return
    _limit_changes += index in _limits
    _limits[index] = share
    info("memory_limit", int(share * torch.cuda.get_device_properties(index).total_memory) if share < 1 else 0)
    info("memory_limit_changes", _limit_changes)

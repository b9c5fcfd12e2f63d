"""What a rehearsal changes in what would start other ranks, or want to hear of them, beside the process group."""

import functools
import sys

from . import rehearsal

if "is_launching" not in globals():  # a reloaded module goes on
    is_launching = False  # this process is torchrun's agent


def _torchrun(module):
    """One worker, on this machine, however many were asked for. Its place it gets from prepare()."""
    real = module.launch_agent

    @functools.wraps(real)
    def launch_agent(config, entrypoint, args):
        global is_launching
        config.min_nodes = config.max_nodes = config.nproc_per_node = 1
        config.rdzv_backend, config.rdzv_endpoint = "c10d", "localhost:0"
        config.rdzv_configs = {key: value for key, value in config.rdzv_configs.items() if key != "rank"}
        is_launching = True
        try:
            return real(config, entrypoint, args)
        finally:
            is_launching = False

    module.launch_agent = launch_agent


def _spawn(module):
    """The first of the processes that a program starts by itself."""
    real = module.start_processes

    @functools.wraps(real)
    def start_processes(fn, args=(), nprocs=1, *more, **options):
        if nprocs > 1:
            rehearsal.say(f"torch.multiprocessing starts one process of {nprocs}, number 0")
        return real(fn, args, 1, *more, **options)

    module.start_processes = start_processes


def _checkpoint_alone(module):
    """A checkpoint is planned by one rank with the plans of all. Here it is of what this rank has."""
    real = module._DistWrapper.__init__

    @functools.wraps(real)
    def init(self, group, use_dist, coordinator_rank):
        real(self, group, False, coordinator_rank)

    module._DistWrapper.__init__ = init


def _checkpoint_in_part(module):
    module._validate_global_plan = lambda *_, **__: True  # which has to have all parts of all tensors


def _no_rpc(module):
    def init_rpc(*_, **__):
        rehearsal.refuse("torch.distributed.rpc.init_rpc wants other ranks to answer")

    module.init_rpc = init_rpc


def _limit(module):
    """A program that limits itself does so within the memory that the rehearsal pretends."""
    real = module.set_per_process_memory_fraction

    @functools.wraps(real)
    def set_per_process_memory_fraction(fraction, device=None):
        from . import limit

        return real(limit.within(fraction, device), device)

    module.set_per_process_memory_fraction = set_per_process_memory_fraction


def _lightning(module):
    """It compares the devices of this machine with the world's."""
    module.TorchElasticEnvironment.validate_settings = lambda self, num_devices, num_nodes: None


_CHANGES = {
    "torch.distributed.launcher.api": _torchrun,
    "torch.multiprocessing.spawn": _spawn,
    "torch.distributed.checkpoint.utils": _checkpoint_alone,
    "torch.distributed.checkpoint.default_planner": _checkpoint_in_part,
    "torch.distributed.rpc": _no_rpc,
    "torch.cuda.memory": _limit,
    "lightning_fabric.plugins.environments.torchelastic": _lightning,
    "lightning.fabric.plugins.environments.torchelastic": _lightning,
}


def change(name):
    _CHANGES[name](sys.modules[name])

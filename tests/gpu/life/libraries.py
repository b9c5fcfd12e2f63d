"""Jobs with libraries that nobody here wrote, and with PyTorch's own FSDP as one rank of two that only pretend to be there.

Part of jobs.py. What is not installed, or has no GPU, is skipped (life.py says so). The process group is PyTorch's fake one:
collectives return at once and move nothing, and all memory is as in a real job of two ranks.
"""

import contextlib
import importlib.util

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from jobs import CUDA, DEVICE, MIB, STEPS, WIDTH, Block, batch, limit, model, truth


@contextlib.contextmanager
def two_ranks():
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def fsdp1():
    """Whole gradients are made for each unit, and reduced to this rank's part."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    with two_ranks():
        net, whole = FSDP(model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device(DEVICE)), []
        units = [unit for unit in net.modules() if isinstance(unit, FSDP) and unit._handle is not None]
        for unit in units:
            unit._handle.flat_param.register_hook(lambda gradient: whole.append(gradient.nbytes))
        optimizer = torch.optim.AdamW(net.parameters())
        for number in range(STEPS):
            whole.clear()
            optimizer.zero_grad()
            net(batch()).square().mean().backward()
            optimizer.step()
            truth("step", step=number, whole_bytes=sum(whole), units=len(units))


def accumulate_oom():
    """FSDP2 keeps whole gradients while it does not reduce them, and runs out of memory in the second micro-batch."""
    from torch.distributed.fsdp import fully_shard

    with two_ranks():
        net = model()
        mesh = init_device_mesh(DEVICE, (2,))
        for block in net:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = torch.optim.AdamW(net.parameters())
        for number in range(2):
            optimizer.zero_grad()
            net(batch()).square().mean().backward()
            optimizer.step()
            truth("step", step=number)
        net.set_requires_gradient_sync(False)
        optimizer.zero_grad()
        net(batch()).square().mean().backward()
        kept = sum(p._unsharded_param.grad.nbytes for block in net for group in [block._get_fsdp_state()._fsdp_param_group]
                   for p in group.fsdp_params)
        limit(16 * MIB)
        try:
            net(batch(8192)).square().mean().backward()
        finally:
            truth("died", in_step=2, whole_bytes=kept)


def lightning():
    """Automatic optimization runs forward and backward in a closure; each step's outputs are kept as if for a metric."""
    import lightning
    from torch.utils.data import DataLoader

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.kept = model(), []

        def training_step(self, rows, number):
            output = self.net(rows)
            self.kept.append(output.detach())
            return output.square().mean()

        def validation_step(self, rows, number):
            self.log("loss", self.net(rows).square().mean())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def on_train_batch_end(self, *_):
            truth("step", step=self.trainer.global_step - 1)

    rows = DataLoader(torch.randn(512 * 8, WIDTH), batch_size=512)
    trainer = lightning.Trainer(accelerator="gpu" if CUDA else "cpu", devices=1, max_epochs=2, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), rows, DataLoader(torch.randn(512, WIDTH), batch_size=512))


def megatron_fsdp():
    """Parameters and gradients in flat buffers and buckets."""
    from megatron_fsdp import fully_shard_model, fully_shard_optimizer

    with two_ranks():
        mesh = init_device_mesh(DEVICE, (2, 1), mesh_dim_names=("dp", "tp"))
        net = fully_shard_model(model().bfloat16(), device_mesh=mesh, dp_shard_dim="dp", tp_dim="tp", fsdp_unit_modules=[Block])
        optimizer = fully_shard_optimizer(torch.optim.AdamW(net.parameters()))
        groups = net.param_and_grad_buffer.parameter_groups
        for number in range(STEPS):
            optimizer.zero_grad()
            net(batch().bfloat16()).float().square().mean().backward()
            optimizer.step()
            truth("step", step=number, weight_bytes=sum(b.data.nbytes for g in groups for b in (g.model_weight_buffer, g.main_weight_buffer)),
                  gradient_bytes=sum(g.main_grad_buffer.data.nbytes for g in groups))


def _is_there(package):
    return importlib.util.find_spec(package) is not None


JOBS = {"fsdp1": fsdp1, "accumulate-oom": accumulate_oom, "lightning": lightning, "megatron-fsdp": megatron_fsdp}
MISSING = {  # name → why it can't run here
    **({} if _is_there("lightning") else {"lightning": "lightning is not installed"}),
    **({} if _is_there("megatron_fsdp") else {"megatron-fsdp": "megatron-fsdp is not installed"}),
}
